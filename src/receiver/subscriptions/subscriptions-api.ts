import type { Request } from 'express'
import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import { auditedCall } from '../api/audited-call.ts'
import { readBody } from '../api/body.ts'
import { gone, jsonBody, readsBody, responses, unknown, type Operation } from '../api/operation.ts'
import { whole } from '../api/reads.ts'
import type { ReceiverDeps } from '../program.ts'
import {
  addSubscription,
  newSubscriptionSchema,
  pauseSubscription,
  placeSchema,
  removeSubscription,
  resumeSubscription,
  rollSubscriptionSecret,
  subscriptionNameSchema,
  testSubscription,
} from './acts.ts'
import { listSubscriptions, subscriptionSchema } from './list-subscriptions.ts'

const secretSchema = z.string().meta({ description: 'The secret that signs each post. It is not shown again.' })
const addedSchema = z
  .object({ name: z.string(), url: z.string(), position: z.int(), secret: secretSchema })
  .meta({ id: 'AddedSubscription' })
const placedSchema = z.object({ name: z.string(), position: z.int() }).meta({ id: 'PlacedSubscription' })
const rolledSchema = z.object({ name: z.string(), secret: secretSchema }).meta({ id: 'RolledSubscription' })
const testedSchema = z
  .object({ name: z.string(), ok: z.boolean(), trouble: z.string().nullable(), webhook_id: z.string() })
  .meta({ id: 'TestedSubscription' })
const resumeSchema = z.strictObject({ from: placeSchema.optional() })

/** The calls for subscriptions, that is services to which the feed is posted. */
export function subscriptionOperations(deps: ReceiverDeps): Operation[] {
  const { db, settings, clock } = deps
  const list = whole('/subscriptions', {
    operationId: 'listSubscriptions',
    summary: 'All subscriptions, with position and backlog',
    item: subscriptionSchema,
    read: () => listSubscriptions(db),
  })
  const add: Operation = {
    method: 'post',
    path: '/subscriptions',
    document: {
      operationId: 'addSubscription',
      summary: 'Subscribe: post each change to a URL',
      description:
        'Posts are signed like the webhooks of the provider. The answer contains the secret, which is not shown again.',
      requestBody: jsonBody(newSubscriptionSchema, {
        name: 'gallery',
        url: 'https://gallery.example.com/changes',
        retry_hours: 24,
        from: 'newest',
        filter: { sandbox: false, complete: true },
      }),
      responses: responses(
        { 201: { description: 'Added', schema: addedSchema } },
        ...readsBody,
        'name_taken',
        'too_many_subscriptions',
        'position_expired',
      ),
    },
    answer: async (req, res) => {
      const wanted = await readBody(req, res, newSubscriptionSchema)
      const detailOf = ({ url, position }: { url: string; position: number }) => ({ host: new URL(url).host, position })
      const work = () => addSubscription(db, wanted, settings)
      res
        .status(201)
        .json(await auditedCall(deps, req, { action: 'subscription_add', target: wanted.name, detailOf, work }))
    },
  }
  const resume = act(deps, 'resume', {
    summary: 'Resume at its position, or at another',
    description:
      '`from` moves the position: changes in between are skipped or posted again. It is required if the ' +
      'next changes are no longer kept.',
    schema: placedSchema,
    body: resumeSchema,
    work: (name, _req, { from }: z.infer<typeof resumeSchema>) => resumeSubscription(db, name, from),
  })
  const none = z.strictObject({})
  return [
    list,
    add,
    act(deps, 'pause', {
      summary: 'Post nothing until it is resumed',
      schema: placedSchema,
      body: none,
      work: (name, req) => pauseSubscription(db, name, actorOf(req)),
    }),
    resume,
    act(deps, 'test', {
      summary: 'Post a test now',
      description:
        'The test is not a change. Its id begins with `test-`, its position is 0, and its request_id is all ' +
        'zeros.',
      schema: testedSchema,
      body: none,
      work: (name, _req, _body, signal) => testSubscription(db, name, { settings, now: clock(), signal }),
      detailOf: ({ ok, trouble }) => ({ ok, trouble }),
    }),
    act(deps, 'roll', {
      summary: 'Replace the secret',
      schema: rolledSchema,
      body: none,
      work: (name) => rollSubscriptionSecret(db, name),
      detailOf: () => ({}),
    }),
    act(deps, 'remove', {
      summary: 'Remove it, with its position',
      schema: placedSchema,
      body: none,
      work: (name) => removeSubscription(db, name),
    }),
  ]
}

type Act<B extends z.ZodType, T extends Record<string, unknown>> = {
  summary: string
  description?: string
  schema: z.ZodType
  body: B
  /** The part of the result that the audit log records; all of it by default. */
  detailOf?: (done: T) => Record<string, unknown>
  work: (name: string, req: Request, body: z.infer<B>, signal: AbortSignal) => Promise<T | undefined>
}

/** Builds a call that acts on a named subscription and is recorded in the audit log. */
function act<B extends z.ZodType, T extends Record<string, unknown>>(
  deps: ReceiverDeps,
  word: string,
  { schema, body, detailOf = (done) => ({ ...done }), work, ...about }: Act<B, T>,
): Operation {
  return {
    method: 'post',
    path: `/subscriptions/{name}/${word}`,
    document: {
      operationId: `${word}Subscription`,
      ...about,
      requestParams: { path: z.object({ name: subscriptionNameSchema }) },
      requestBody: jsonBody(body, {}, { required: false }),
      responses: responses(
        { 200: { description: 'Done', schema } },
        ...readsBody,
        'not_found',
        ...(word === 'resume' ? (['position_expired'] as const) : []),
      ),
    },
    answer: async (req, res) => {
      const name = subscriptionNameSchema.safeParse(req.params['name'])
      if (!name.success) throw unknown(req)
      const given = await readBody(req, res, body)
      const signal = gone(res)
      const done = await auditedCall(deps, req, {
        action: `subscription_${word}`,
        target: name.data,
        detailOf: (result: T | undefined) => result && detailOf(result),
        work: () => work(name.data, req, given, signal),
      })
      if (!done) throw unknown(req)
      res.json({ name: name.data, ...done })
    },
  }
}
