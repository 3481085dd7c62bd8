import type { Request, Response } from 'express'
import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import type { AuditDeps } from '../../platform/pages/audit.ts'
import { auditedCall, gone, jsonBody, unknown, type Operation, readBody, whole } from '../api/operation.ts'
import type { ReceiverDeps } from '../program.ts'
import { writeWithin } from '../queries/deadline.ts'
import {
  addSubscription,
  isAct,
  newSubscriptionSchema,
  placeSchema,
  subscriptionActs,
  subscriptionNameSchema,
  type ActName,
  type FeedPlace,
  type NewSubscription,
  type SubscriptionTest,
} from './acts.ts'
import { listSubscriptions, subscriptionSchema } from './list-subscriptions.ts'

const secretSchema = z.string().describe('The secret that signs each post. It is not shown again.')
const addedSchema = z
  .object({ name: z.string(), url: z.string(), position: z.int(), secret: secretSchema })
  .meta({ id: 'AddedSubscription' })
const placedSchema = z.object({ name: z.string(), position: z.int() }).meta({ id: 'PlacedSubscription' })
const rolledSchema = z.object({ name: z.string(), secret: secretSchema }).meta({ id: 'RolledSubscription' })
const testedSchema = z
  .object({ name: z.string(), ok: z.boolean(), trouble: z.string().nullable(), webhook_id: z.string() })
  .meta({ id: 'TestedSubscription' })

type Act = { summary: string; description?: string; schema: z.ZodType }

/** The acts in the order of the document. */
const acts: Readonly<Record<ActName, Act>> = {
  pause: { summary: 'Post nothing until it is resumed', schema: placedSchema },
  resume: {
    summary: 'Resume at its position, or at another',
    description:
      '`from` moves the position: changes in between are skipped or posted again. It is required if the ' +
      'next changes are no longer kept.',
    schema: placedSchema,
  },
  test: {
    summary: 'Post a test now',
    description:
      'The test is not a change. Its id begins with `test-`, its position is 0, and its request_id is all zeros.',
    schema: testedSchema,
  },
  roll: {
    summary: 'Replace the secret',
    description: 'After a 503, call it again: Postgres may have replaced the secret after the answer.',
    schema: rolledSchema,
  },
  remove: { summary: 'Remove it, with its position', schema: placedSchema },
}

/** The calls for subscriptions, that is services to which the feed is posted. */
export function subscriptionOperations(deps: ReceiverDeps): Operation[] {
  const { db } = deps
  const list = whole('/subscriptions', {
    operationId: 'listSubscriptions',
    summary: 'All subscriptions, with position and backlog',
    item: subscriptionSchema,
    read: () => listSubscriptions(db),
  })
  const add: Operation = {
    method: 'post',
    path: '/subscriptions',
    operationId: 'addSubscription',
    summary: 'Subscribe: post each change to a URL',
    description:
      'Posts are signed like the webhooks of the provider. The answer contains the secret, which is not shown again. ' +
      'If a call is answered 503 and its repeat `name_taken`, the first one has added it: roll its secret.',
    requestBody: jsonBody(newSubscriptionSchema, {
      name: 'gallery',
      url: 'https://gallery.example.com/changes',
      retry_hours: 24,
      from: 'newest',
      filter: { sandbox: false, complete: true },
    }),
    answers: { 201: { description: 'Added', schema: addedSchema } },
    errors: ['name_taken', 'too_many_subscriptions', 'position_expired'],
    answer: async (req, res) => {
      const wanted = await readBody(req, res, newSubscriptionSchema)
      res.status(201).json(await writeWithin(auditedAdd(deps, req, wanted)))
    },
  }
  return [
    list,
    add,
    ...Object.keys(acts)
      .filter(isAct)
      .map((word) => act(deps, word)),
  ]
}

function act(deps: ReceiverDeps, word: ActName): Operation {
  const { schema, ...about } = acts[word]
  const isResume = word === 'resume'
  const none: z.ZodType<{ from?: FeedPlace }> = z.strictObject({})
  const body = isResume ? z.strictObject({ from: placeSchema.optional() }) : none
  return {
    method: 'post',
    path: `/subscriptions/{name}/${word}`,
    operationId: `${word}Subscription`,
    ...about,
    requestParams: { path: z.object({ name: subscriptionNameSchema }) },
    requestBody: jsonBody(body, {}, { required: false }),
    answers: { 200: { description: 'Done', schema } },
    errors: ['not_found', ...(isResume ? (['position_expired'] as const) : [])],
    answer: async (req, res) => {
      const { from } = await readBody(req, res, body)
      const acting = auditedAct(deps, { req, res, word, from })
      // A test also waits for the answer of the service.
      res.json({ name: nameIn(req), ...(await (word === 'test' ? acting : writeWithin(acting))) })
    },
  }
}

/** The name in the path. A malformed one is a 404. */
export function nameIn(req: Request): string {
  const name = subscriptionNameSchema.safeParse(req.params['name'])
  if (!name.success) throw unknown(req)
  return name.data
}

type Done = { position: number } | { secret: string } | SubscriptionTest
type Acting = { req: Request; res: Response; word: ActName; from?: FeedPlace | undefined }

export function auditedAct(deps: ReceiverDeps, { req, res, word, from }: Acting): Promise<Done> {
  const name = nameIn(req)
  const options = { actor: actorOf(req), from, now: deps.clock(), signal: gone(res) }
  return audited<Done>(deps, req, { word, name, work: () => subscriptionActs[word](deps, name, options) })
}

export function auditedAdd(deps: ReceiverDeps, req: Request, wanted: NewSubscription) {
  const work = () => addSubscription(deps.db, wanted, deps.settings)
  return audited(deps, req, { word: 'add', name: wanted.name, work })
}

/** The details for the audit log: neither the secret, nor the path of a URL, which may be a secret. */
function auditedPart({ url, position, ok, trouble }: Partial<Record<string, unknown>>): Record<string, unknown> {
  return { host: typeof url === 'string' ? new URL(url).host : undefined, position, ok, trouble }
}

/** Does the work and records it in the audit log. An unknown subscription is a 404. */
async function audited<T extends object>(
  deps: AuditDeps,
  req: Request,
  { word, name: target, work }: { word: string; name: string; work: () => Promise<T | undefined> },
): Promise<T> {
  const detailOf = (result: T | undefined) => result && auditedPart({ ...result })
  const done = await auditedCall(deps, req, { action: `subscription_${word}`, target, detailOf, work })
  if (done === undefined) throw unknown(req)
  return done
}
