import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { withDeadline } from '../../platform/deadline.ts'
import { HttpError } from '../../platform/http/http.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { noteCreditsRefused } from '../accounts/balances.ts'
import { isUsable, usableKey, type GenerationKey } from '../domain/keys.ts'
import { requestIdOf } from '../domain/request-id.ts'
import { storedName, type SubmitOutcome } from '../domain/source.ts'
import { mustBeStorable } from '../domain/storable.ts'
import { maxPauseSeconds, type KeyEffect } from '../fetching/key-health.ts'
import { callSource, type CallingDeps } from '../fetching/source-call.ts'
import { callDeadlineMs } from '../fetching/source-client.ts'
import * as intents from './generations.ts'
import type { FoundGeneration, Generation } from './generations.ts'
import * as refusals from './refusals.ts'

export const generationBodySchema = z.strictObject({
  model: z.string().min(1).max(255),
  input: z.record(z.string(), z.unknown()),
  key_name: z.string().optional(),
  idempotency_key: z.uuidv4('must be a uuid of version 4').optional(),
  metadata: z.record(z.string(), z.unknown()).optional(),
})
export type GenerationBody = z.infer<typeof generationBodySchema> & { idempotency_key: string }

export type SubmitterDeps = CallingDeps & {
  webhookPublicUrl: string
  cut: AbortSignal
}

export type Answer = { status: number; body: unknown }

/** How long a caller waits for Postgres. */
const postgresWithinMs = 5000
const retryPause = { baseMs: 2000, capMs: 300_000 }
/** Due submits that are posted at once: a burst must leave calls of the key to others. */
const submitsAtOnce = 8

/**
 * Creates the submitter, with which no crash and no timeout can charge twice. The submit is durable before the call,
 * and every call for it has the same Idempotency-Key. A source that ignores that key is not called again after an
 * answer was lost: the submit waits for a signed webhook whose URL names it, or expires. A submit that Postgres delays
 * rejects with a DeadlineError and may still be made: the caller repeats it with its Idempotency-Key.
 */
export function createSubmitter(deps: SubmitterDeps) {
  const submit = async (body: GenerationBody): Promise<Answer> => {
    mustBeStorable(body)
    const key = usableKey(deps.keys(), body.key_name)
    const idempotencyKey = body.idempotency_key
    const opening = intents.open(deps.db, {
      idempotencyKey,
      model: body.model,
      input: body.input,
      keyName: key.name,
      environment: key.environment,
      sourceName: storedName(key.source),
      webhookUrl: webhookUrlOf(deps, key, idempotencyKey),
      metadata: body.metadata,
      now: deps.time(),
    })
    const answering = opening.then(async (opened) => {
      if (opened.kind === 'other_parameters') {
        throw new HttpError(409, 'idempotency_key_reuse', 'this idempotency_key was used for another generation')
      }
      if (opened.kind === 'ours') {
        await (opened.isForgotten ? refusals.expire(deps.db, deps.time()) : attempt(deps, opened.generation, key))
      }
      const generation = await intents.find(deps.db, idempotencyKey)
      if (!generation) throw new Error(`the submit ${idempotencyKey} was not found`)
      return answerOf(generation)
    })
    // It continues after a deadline, since a stored submit is made. If it fails then, runOnce() makes the submit.
    answering.catch(() => {})
    await withDeadline(opening, postgresWithinMs, 'storing a submit')
    return withDeadline(answering, callDeadlineMs + postgresWithinMs, 'a submit')
  }
  return {
    submit,
    find: async (idempotencyKey: string): Promise<ShownGeneration | undefined> => {
      const finding = intents.find(deps.db, idempotencyKey)
      const generation = await withDeadline(finding, postgresWithinMs, 'reading a submit')
      return generation && show(generation)
    },
    runOnce: async () => {
      await refusals.expire(deps.db, deps.time())
      const due = await intents.claimDue(deps.db, { limit: submitsAtOnce, now: deps.time() })
      await Promise.all(due.map((generation) => attempt(deps, generation, deps.keys().byName.get(generation.key_name))))
      return { more: due.length === submitsAtOnce }
    },
  }
}

/** The webhook URL of the key's source. That of a source in SOURCES_FILE names the submit, so a webhook can end it. */
function webhookUrlOf({ keys, webhookPublicUrl }: SubmitterDeps, { source }: GenerationKey, key: string): string {
  if (source.name === keys().defaultSource.name) return webhookPublicUrl
  const url = new URL(webhookPublicUrl)
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/${source.name}`
  url.searchParams.set('generation', key)
  return url.href
}

/** The `last_error` of a submit that the source may have accepted. It waits for its webhook until it expires. */
const maybe = (cause: string) => `maybe submitted: ${cause}`

/** Schedules the next attempt of a submit, or with no pause none. See postpone() of generations.ts. */
function postponing({ db, time }: SubmitterDeps, generation: Generation) {
  return (error: string, pauseSeconds: number | undefined, isCertain: boolean) =>
    intents.postpone(db, generation, { now: time(), error, pauseSeconds, isCertain })
}

async function attempt(deps: SubmitterDeps, generation: Generation, key: GenerationKey | undefined): Promise<void> {
  const postpone = postponing(deps, generation)
  if (!key || !isUsable(key)) return postpone(`key ${generation.key_name} is not usable`, pauseOf(generation), true)
  if (intents.isInDoubt(generation) && !key.source.kind.idempotentSubmit)
    return postpone(maybe('the receiver stopped before it had the answer'), undefined, true)
  const { idempotency_key: idempotencyKey, model, input } = generation
  // Submits of an older release have no URL.
  const webhookUrl = generation.webhook_url ?? deps.webhookPublicUrl
  const outcome = await callSource(deps, {
    operation: 'submit',
    key,
    purpose: 'submitting',
    call: (api) => key.source.kind.submit({ idempotencyKey, model, input, webhookUrl }, api),
    signal: deps.cut,
    factsOf: (of) => ({ idempotency_key: idempotencyKey, model, ...factsOf(of, generation) }),
    keyEffect,
    onGranted: () => mayCall(deps, generation),
  })
  if (outcome.kind === 'no_call')
    return postpone(`${intents.notCalled}${outcome.reason}`, outcome.retryAfterSeconds, true)
  return record(deps, { generation, key, outcome })
}

/**
 * Without an answer of Postgres the call is not made. attempt() then ends the doubt that may have been stored. If that
 * fails too, the submit expires without a call.
 */
function mayCall({ db, logger }: SubmitterDeps, generation: Generation): Promise<boolean> {
  return intents.beginCall(db, generation).catch((error: unknown) => {
    logger.warn({ err: error, idempotency_key: generation.idempotency_key }, 'a submit is put off: see err')
    return false
  })
}

/** Returns the effect of an answer on its key. A 403 concerns only submits (spec, Authentication). */
function keyEffect(outcome: SubmitOutcome): KeyEffect {
  if (outcome.kind === 'unauthorized' && outcome.status === 401) return 'refused'
  return outcome.kind === 'submitted' || outcome.kind === 'refused' ? 'accepted' : 'none'
}

function factsOf(
  outcome: SubmitOutcome,
  { source_name: sourceName }: Generation,
): { request_id?: string; external_id?: string; detail?: string } {
  if (outcome.kind === 'submitted') {
    const { requestId, externalId } = requestIdOf(sourceName, outcome.jobId)
    return { request_id: requestId, ...(externalId !== null && { external_id: externalId }) }
  }
  if (outcome.kind === 'refused' || outcome.kind === 'unauthorized')
    return { detail: `${outcome.status} ${outcome.envelope.error.code}` }
  return outcome.kind === 'unreachable' ? { detail: outcome.detail } : {}
}

/** Within the lease of a submit (generations.ts). */
const recording = { tries: 5, baseMs: 500, capMs: 8000 }

/**
 * Records that the source accepted a submit. Tries again if Postgres fails: only this process knows the id of the job,
 * and a source without idempotency cannot be asked again.
 */
async function recordSubmitted(
  { db, cut, logger }: SubmitterDeps,
  generation: Generation,
  submittedAs: intents.SubmittedAs,
): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await intents.submitted(db, generation, submittedAs)
    } catch (error) {
      if (tries === recording.tries || cut.aborted || faultOf(error) === 'row') throw error
      const ids = { idempotency_key: generation.idempotency_key, request_id: submittedAs.requestId }
      logger.warn({ err: error, ...ids }, 'an accepted submit could not be recorded, trying again')
      await delay(jitteredPauseMs(tries, recording, Math.random), undefined, { signal: cut }).catch(() => {})
    }
  }
}

type ToRecord = { generation: Generation; key: GenerationKey; outcome: SubmitOutcome }

async function record(deps: SubmitterDeps, { generation, key, outcome }: ToRecord): Promise<void> {
  const { db } = deps
  const now = deps.time()
  const postpone = postponing(deps, generation)
  switch (outcome.kind) {
    case 'submitted': {
      const { jobId, cost } = outcome
      const ids = requestIdOf(generation.source_name, jobId)
      return recordSubmitted(deps, generation, { ...ids, cost, environment: key.environment, now })
    }
    case 'refused':
      if (outcome.status === 402) await noteCreditsRefused(db, key.name, now)
      return refusals.refused(db, generation, { status: outcome.status, envelope: outcome.envelope, now })
    case 'unauthorized': {
      // The caller of a first attempt gets the provider's answer. Later, the key must be corrected first. An earlier
      // attempt may have been charged, so only an answer to its Idempotency-Key ends the submit.
      const { status, envelope } = outcome
      if (!intents.isInDoubt(generation) && !generation.promised)
        return refusals.refused(db, generation, { status, envelope, now })
      return postpone(`${status} ${envelope.error.code}`, pauseOf(generation), true)
    }
    case 'in_progress':
      return postpone('request_in_progress', pauseOf(generation), false)
    case 'rate_limited': {
      // Bounded like the pause of the key (pauseAfter), so that a long Retry-After does not let the submit expire.
      const askedSeconds = Math.min(outcome.retryAfterSeconds ?? 0, maxPauseSeconds)
      return postpone('rate_limited', Math.max(askedSeconds, pauseOf(generation)), true)
    }
    case 'unreachable':
      if (outcome.isUnsent !== true && !key.source.kind.idempotentSubmit)
        return postpone(maybe(outcome.detail), undefined, false)
      return postpone(outcome.detail, pauseOf(generation), outcome.isUnsent === true)
    default:
      return outcome satisfies never
  }
}

function pauseOf({ attempts }: Generation): number {
  return jitteredPauseMs(Math.min(attempts, 20), retryPause, Math.random) / 1000
}

function answerOf(generation: FoundGeneration): Answer {
  if (generation.state === 'refused' && generation.answer_status !== null)
    return { status: generation.answer_status, body: generation.answer }
  return { status: 202, body: show(generation) }
}

export type ShownGeneration = ReturnType<typeof show>

function show({ idempotency_key, state, request_id, status, model, key_name, metadata, ...row }: FoundGeneration) {
  const { cost, attempts, next_attempt_at, last_error, answer, created_at } = row
  return {
    idempotency_key,
    state,
    request_id,
    status,
    model,
    key_name,
    metadata,
    cost: cost === null ? null : Number(cost),
    attempts,
    next_attempt_at: state === 'pending' ? next_attempt_at : null,
    last_error,
    answer,
    created_at,
  }
}
