import type { IncomingMessage } from 'node:http'
import type { IRouter, Request, Response } from 'express'
import { proveConnection } from '../../platform/http/connections.ts'
import { methodNotAllowed } from '../../platform/http/http.ts'
import { noteForLog } from '../../platform/http/request-log.ts'
import { addressOf } from '../../platform/http/sender.ts'
import { inTurns } from '../../platform/http/turns.ts'
import { createLineBudget, type LineBudget } from '../../platform/line-budget.ts'
import type { Logger } from '../../platform/logger.ts'
import { deliveryId, largeBodyBytes, toDelivery, type Delivery } from '../domain/delivery.ts'
import { environmentOfKey, type Keys } from '../domain/keys.ts'
import { maxInteger } from '../domain/limits.ts'
import {
  atOnce,
  storedName,
  type HeaderValues,
  type Identity,
  type Source,
  type SourceVerification,
  type Steps,
  type Webhook,
} from '../domain/source.ts'
import type { Acceptor } from './accept.ts'
import { toLogLine, type Arrival, type ArrivalLog, type LogRow } from './arrival-log.ts'
import { createBodyReader, incomplete, type BodyReader } from './body-reader.ts'
import type { Quarantine } from './quarantine.ts'
import { headersToVerify, keptHeaders, startOf, valuesOf } from './request-headers.ts'
import { acknowledge, answerRefusal, Refusal, unavailable } from './webhook-answers.ts'

const internalError = 'internal_error'

export type WebhookDeps = {
  keys: () => Keys
  acceptor: Acceptor
  arrivalLog: Pick<ArrivalLog, 'record'>
  quarantine: Pick<Quarantine, 'record'>
  /** Writes the spans of an answered arrival. */
  traces: { arrived: (arrival: Arrival) => void } | undefined
  maxBodyBytes: number
  clock: () => Date
  logger: Logger
  /** Called with the source of an arrival whose signature matches no key of the source. */
  onUnknownKey: (source: Source) => void
  /** Called where an unsigned webhook names a job that may have ended. Anyone can send one, at any rate. */
  onUnsigned: (named: { sourceName: string | null; requestId: string }) => void
}

/**
 * Mounts `POST /webhooks`, and `POST /webhooks/<name>` for each source of the settings. Only signed,
 * authentic webhooks are stored as deliveries, and a delivery is acknowledged once it is durable. Arrivals refused for
 * their id or signature go to the quarantine.
 */
export function mountWebhooks(app: IRouter, deps: WebhookDeps): void {
  // Bounded, so that a bug met by every delivery does not fill the disk.
  const mayLogFault = createLineBudget({ logger: deps.logger, what: 'deliveries that met an internal error' })
  const receiving = { ...deps, reader: createBodyReader(deps), mayLogFault }
  app.post('/webhooks', (req, res) => {
    const keys = deps.keys()
    return receive(receiving, { req, res, keys, source: keys.defaultSource })
  })
  app.all('/webhooks', methodNotAllowed('POST'))
  app.all('/webhooks/:source', (req, res, next) => {
    const keys = deps.keys()
    const source = keys.sources.get(req.params.source)
    if (source === undefined) return next()
    return req.method === 'POST'
      ? receive(receiving, { req, res, keys, source })
      : methodNotAllowed('POST')(req, res, next)
  })
}

type Receiving = WebhookDeps & { reader: BodyReader; mayLogFault: LineBudget }

/** A request to a source. Keys are read once, since SIGHUP may replace them while a body arrives. */
type Addressed = { req: Request; res: Response; keys: Keys; source: Source }

/** Admits a webhook, stores it, answers, and then records the arrival. */
async function receive(deps: Receiving, addressed: Addressed): Promise<void> {
  const { req, res, source } = addressed
  const started = performance.now()
  const arrival = newArrival(req, { arrivedAt: deps.clock(), source })
  const { row } = arrival
  // Silent until the outcome is known, since the client may disconnect before.
  noteForLog(res, 'silent')
  try {
    const delivery = await admit(deps, { ...addressed, arrival, started })
    const isSigned = source.kind.signed
    const outcome = isSigned ? await deps.acceptor.accept(delivery) : takeUnsigned(deps, delivery, row)
    row.outcome = outcome
    row.status = 200
    acknowledge(res, outcome)
    proveConnection(req.socket)
  } catch (error) {
    const refusal = error instanceof Refusal ? error : unavailable(internalError, { cause: error })
    row.outcome = refusal.status === 503 ? 'unavailable' : 'refused'
    row.status = refusal.status
    row.reason = refusal.reason
    if (refusal.reason === internalError) logFault(deps, error, row)
    answerRefusal(req, res, refusal)
  }
  row.ack_ms = performance.now() - started
  // Arrivals that any client can cause get a line and a span only if they get a row.
  if (!deps.arrivalLog.record(arrival)) return
  deps.traces?.arrived(arrival)
  noteForLog(res, toLogLine(arrival, deps.traces))
}

function logFault({ logger, mayLogFault }: Receiving, error: unknown, { webhook_id, delivery_id }: LogRow): void {
  if (mayLogFault())
    logger.error({ err: error, webhook_id, delivery_id }, 'internal error: a delivery was not acknowledged')
}

function newArrival(req: Request, { arrivedAt, source }: { arrivedAt: Date; source: Source }): Arrival {
  return {
    row: {
      arrived_at: arrivedAt,
      outcome: 'refused',
      status: 0,
      source_name: storedName(source),
      // Long enough for any address. Behind a trusted proxy, `req.ip` is text from a header.
      remote: req.ip === undefined ? undefined : startOf(addressOf(req.ip), 64),
      ack_ms: 0,
      folded: 0,
    },
    timestampMismatch: false,
  }
}

type Exchange = Addressed & { arrival: Arrival; started: number }

/**
 * Reads a webhook, verifies its bytes, and parses it into a delivery. Throws the refusal of an arrival that is not
 * authentic. Notes on `arrival` what is learnt on the way, so that the log shows it whatever follows.
 */
async function admit(deps: Receiving, exchange: Exchange): Promise<Delivery> {
  const { req, res, keys, source, arrival, started } = exchange
  const { row } = arrival
  const header: HeaderValues = (name) => valuesOf(req, name)
  // Before the body, so that the log names also a delivery whose body does not arrive.
  const early = source.kind.identify({ header })
  row.webhook_id = statedIn(early)
  refuseContentEncoding(req)
  const { body, release } = await deps.reader.read(req, res)
  try {
    row.bytes = body.length
    arrival.readMs = performance.now() - started
    // Some kinds of sources find the id only in the body.
    const identity = early.ok ? early : source.kind.identify({ header, body })
    row.webhook_id = statedIn(identity)
    if (!identity.ok) {
      keepRefused(deps, exchange, body, 'invalid_webhook_id')
      throw new Refusal(400, 'invalid_webhook_id', identity.message)
    }
    const { webhookId } = identity
    const idOf = () => deliveryId(webhookId, body, row.source_name)
    // So the log shows a refused arrival beside the delivery that it repeats. The id of a large body takes long, and is
    // computed after the verification.
    if (body.length <= largeBodyBytes) row.delivery_id = idOf()

    // The time at which the body is complete counts, since a large body may wait for its turn.
    const nowSeconds = Math.floor(deps.clock().getTime() / 1000)
    const verification = await verify(req, source, { header, body }, nowSeconds)
    if (verification.timestampSeconds !== undefined) row.skew_seconds = skew(nowSeconds - verification.timestampSeconds)
    if (!verification.ok) {
      const { cause: reason } = verification
      if (reason === 'no_matching_secret') deps.onUnknownKey(source)
      keepRefused(deps, exchange, body, reason)
      throw new Refusal(401, 'invalid_signature', 'the signature or its time is not valid', { reason })
    }
    const { keyName, timestampSeconds } = verification
    arrival.verifiedMs = performance.now() - started
    if (source.kind.signed) row.key_name = keyName
    arrival.timestampMismatch = verification.timestampMismatch === true
    // Node joins repeated ones with commas. parseTraceparent() ignores such a text.
    const { traceparent } = req.headers
    if (typeof traceparent === 'string') arrival.traceparent = traceparent

    const id = (row.delivery_id ??= idOf())
    const environment = environmentOfKey(keys, keyName)
    const received = { receivedAt: row.arrived_at, headers: keptHeaders(req, source), body }
    const delivery = toDelivery({ source, id, webhookId, keyName, environment, timestampSeconds, ...received })
    row.request_id = delivery.requestId
    if (delivery.parsed.kind === 'unreadable') row.reason = delivery.parsed.reason
    return delivery
  } finally {
    release()
  }
}

/** Limits a skew to the range of its column. A forged time of 12 digits exceeds it. */
function skew(seconds: number): number {
  return Math.max(-maxInteger, Math.min(maxInteger, seconds))
}

/** Returns the id that an arrival states, for the log. */
function statedIn(identity: Identity): string | undefined {
  const stated = identity.ok ? identity.webhookId : identity.stated
  return stated === undefined ? undefined : startOf(stated, 255)
}

function refuseContentEncoding(req: IncomingMessage): void {
  const encoding = req.headers['content-encoding']
  if (encoding === undefined || encoding.toLowerCase() === 'identity') return
  const message = 'the body must be sent without Content-Encoding: the signature covers the bytes as sent'
  throw new Refusal(415, 'unsupported_encoding', message)
}

/** Gives an arrival that will be refused to the quarantine. */
function keepRefused(deps: Receiving, { req, source, arrival }: Exchange, body: Buffer, reason: string): void {
  const { arrived_at: arrivedAt, remote, webhook_id: webhookId } = arrival.row
  const headers = () => headersToVerify(req, source)
  deps.quarantine.record({ arrivedAt, reason, webhookId, remote, headers, body })
}

/** Verifies the bytes of a small body at once, and those of a large one in turns. */
async function verify(
  req: IncomingMessage,
  { kind, secrets }: Source,
  webhook: Webhook,
  nowSeconds: number,
): Promise<SourceVerification> {
  const steps = kind.verify(webhook, secrets, nowSeconds)
  return webhook.body.length > largeBodyBytes ? inTurns(unlessGone(req, steps)) : atOnce(steps)
}

/** Ends the verification if the client has disconnected. */
function* unlessGone<Result>(req: IncomingMessage, steps: Steps<Result>): Steps<Result> {
  for (;;) {
    if (req.socket.destroyed) throw incomplete()
    const step = steps.next()
    if (step.done === true) return step.value
    yield
  }
}

/**
 * Takes a webhook of a source that does not sign. It is not stored as a delivery. A job that it names is polled, if it
 * is tracked. Without a key name, the log bounds such arrivals like refused ones.
 */
function takeUnsigned({ onUnsigned }: WebhookDeps, { sourceName, requestId, parsed }: Delivery, row: LogRow): 'hint' {
  row.reason ??= 'unsigned'
  if (parsed.kind === 'hint' && parsed.poll && requestId !== undefined) onUnsigned({ sourceName, requestId })
  return 'hint'
}
