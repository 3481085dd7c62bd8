import type { IncomingMessage } from 'node:http'
import type { IRouter, Request, Response } from 'express'
import { proveConnection } from '../../platform/http/connections.ts'
import { methodNotAllowed } from '../../platform/http/http.ts'
import { noteForLog, type LogNote } from '../../platform/http/request-log.ts'
import { inTurns } from '../../platform/http/turns.ts'
import { deliveryId, toDelivery, type Delivery } from '../domain/delivery.ts'
import { signedEnvironment, type Keys } from '../domain/keys.ts'
import {
  atOnce,
  type HeaderValues,
  type Identity,
  type Source,
  type SourceVerification,
  storedName,
  type Steps,
} from '../domain/source.ts'
import { pathHeader, pathIn, webhookPath } from '../domain/webhook-path.ts'
import type { Acceptor } from './accept.ts'
import { createBodyReader, incomplete, largeBodyBytes, type BodyReader } from './body-reader.ts'
import { headersToVerify, keptHeaders, startOf, valuesOf } from './request-headers.ts'
import { acknowledge, answerRefusal, Refusal, unavailable, type Acceptance } from './webhook-answers.ts'

/** The reason of an unexpected error. */
const internalError = 'internal_error'

/** The facts of one answered HTTP arrival, for the log, the metrics and the console. */
export type Arrival = {
  arrivedAt: Date
  /** `hint`: an unsigned webhook. It is logged and may cause a poll, and is never stored as a delivery. */
  outcome: Acceptance | 'hint' | 'refused' | 'unavailable'
  reason?: string | undefined
  status: number
  webhookId?: string | undefined
  deliveryId?: string | undefined
  requestId?: string | undefined
  keyName?: string | undefined
  /** See storedName(). */
  sourceName: string | null
  remote?: string | undefined
  bytes?: number | undefined
  skewSeconds?: number | undefined
  timestampMismatch: boolean
  /** The traceparent of an authentic arrival, as sent. */
  traceparent?: string | undefined
  /** When the body was complete, and when it was verified; in ms since the beginning, like `ackMs`. */
  readMs?: number | undefined
  verifiedMs?: number | undefined
  ackMs: number
}

export type Refused = {
  arrivedAt: Date
  reason: string
  webhookId: string | undefined
  remote: string | undefined
  /** A function, so that headers are copied only if there is room for them. */
  headers: () => Record<string, string>
  body: Buffer
}

export type WebhookDeps = {
  keys: () => Keys
  acceptor: Pick<Acceptor, 'accept'>
  maxBodyBytes: number
  clock: () => Date
  /** Called once for each arrival, after its answer. Returns the line for the log. */
  onArrival: (arrival: Arrival) => LogNote
  /** Called with an unexpected error, which is answered 503. */
  onFault: (error: unknown, arrival: Arrival) => void
  /** Called with the source of an arrival whose signature matches no key of the source. */
  onUnknownKey: (source: Source) => void
  /** Called with arrivals refused for their id or signature. */
  onRefused: (refused: Refused) => void
  /** Called where an unsigned webhook names a job that may have ended. Anyone can send one, at any rate. */
  onUnsigned: (named: UnsignedHint) => void
}

/** A request that an unsigned webhook names. */
export type UnsignedHint = { sourceName: string | null; requestId: string }

/**
 * Mounts `POST /webhooks`, and `POST /webhooks/<name>` for each source of the settings. Only authentic webhooks become
 * deliveries, and a delivery is acknowledged once it is durable. A refused body may be quarantined. An unsigned webhook
 * is answered, but not stored as a delivery.
 *
 * A delivery passes through these files, in this order:
 *
 * 1. platform/http/: connections.ts bounds connections and requests, framing.ts refuses what is not proper HTTP
 * 2. here: identify() reads the id from the headers, so that the log names it also if no body arrives
 * 3. body-reader.ts reads the raw bytes, within one budget for all bodies
 * 4. here: check() verifies the HMAC over the bytes (wire/signature.ts), then parses them (domain/delivery.ts)
 * 5. accept.ts gathers deliveries, and store.ts commits them, usually in one statement
 * 6. webhook-answers.ts answers
 * 7. arrival-log.ts logs the arrival, and quarantine.ts keeps a refused one. Both write after the answer
 */
export function mountWebhooks(app: IRouter, deps: WebhookDeps): void {
  const receiving = { ...deps, reader: createBodyReader(deps) }
  app.post('/webhooks', (req, res) => {
    const keys = deps.keys()
    return receive(receiving, { req, res, keys, source: keys.first })
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

type Receiving = WebhookDeps & { reader: BodyReader }

/** A request to a source. Keys are read once, since SIGHUP may replace them while a body arrives. */
type Addressed = { req: Request; res: Response; keys: Keys; source: Source }

type Exchange = Addressed & { arrival: Arrival; started: number; header: HeaderValues }

async function receive(deps: Receiving, addressed: Addressed): Promise<void> {
  const { req, res, source } = addressed
  const started = performance.now()
  const arrival = newArrival(req, { arrivedAt: deps.clock(), source })
  // Silent until the outcome is known, since the client may disconnect before.
  noteForLog(res, 'silent')
  try {
    const delivery = await admit(deps, { ...addressed, arrival, started, header: (name) => valuesOf(req, name) })
    arrival.outcome = source.kind.promises.signed ? await deps.acceptor.accept(delivery) : noteUnsigned(deps, delivery)
    arrival.status = 200
    acknowledge(res, arrival.outcome)
    proveConnection(req.socket)
  } catch (error) {
    const refusal = error instanceof Refusal ? error : unavailable(internalError, { cause: error })
    arrival.outcome = refusal.status === 503 ? 'unavailable' : 'refused'
    arrival.status = refusal.status
    arrival.reason = refusal.reason
    if (refusal.reason === internalError) deps.onFault(error, arrival)
    answerRefusal(req, res, refusal)
  }
  arrival.ackMs = performance.now() - started
  noteForLog(res, deps.onArrival(arrival))
}

function newArrival(req: Request, { arrivedAt, source }: { arrivedAt: Date; source: Source }): Arrival {
  return {
    arrivedAt,
    outcome: 'refused',
    status: 0,
    sourceName: storedName(source),
    // Long enough for any address. Behind a trusted proxy, `req.ip` is text from a header.
    remote: req.ip === undefined ? undefined : startOf(req.ip, 64),
    timestampMismatch: false,
    ackMs: 0,
  }
}

/** An unsigned webhook is not stored as a delivery. A job that it names is polled, if it is tracked. */
function noteUnsigned({ onUnsigned }: WebhookDeps, { sourceName, requestId, hint }: Delivery): 'hint' {
  if (hint?.poll === true && requestId !== undefined) onUnsigned({ sourceName, requestId })
  return 'hint'
}

/** Returns the delivery of an admitted arrival, or throws the refusal. Notes on `arrival` what is learnt on the way. */
async function admit(deps: Receiving, exchange: Exchange): Promise<Delivery> {
  const { req, res, source, arrival, started } = exchange
  // Before the body, so that the log names also a delivery whose body does not arrive.
  const early = identify(exchange)
  refuseContentEncoding(req)
  const { body, release } = await deps.reader.read(req, res)
  try {
    arrival.bytes = body.length
    arrival.readMs = performance.now() - started
    const delivery = await check(deps, exchange, { body, identity: early.ok ? early : identify(exchange, body) })
    if (!(delivery instanceof Refusal)) return delivery
    const { arrivedAt, remote, webhookId } = arrival
    const headers = () => withPath(headersToVerify(req, source.kind.promises.signatureHeaders), req, source)
    deps.onRefused({ arrivedAt, remote, webhookId, reason: delivery.reason, headers, body })
    throw delivery
  } finally {
    release()
  }
}

/** Returns the id of a delivery, and notes it for the log. Without the body, some sources have no id yet. */
function identify({ source, arrival, header }: Exchange, body?: Buffer): Identity {
  const identity = source.kind.identify({ header, body })
  const claimed = identity.ok ? identity.webhookId : identity.claimed
  arrival.webhookId = claimed === undefined ? undefined : startOf(claimed, 255)
  return identity
}

/** Verifies a complete body, then parses it. Returns a refusal for an arrival that the quarantine keeps. */
async function check(
  deps: Receiving,
  exchange: Exchange,
  { body, identity }: { body: Buffer; identity: Identity },
): Promise<Delivery | Refusal> {
  const { req, keys, source, arrival, started } = exchange
  const { promises } = source.kind
  if (!identity.ok) return new Refusal(400, 'invalid_webhook_id', identity.message)
  const { webhookId } = identity
  const idOf = () => deliveryId(webhookId, body, arrival.sourceName)
  // So the log shows a refused arrival beside the delivery that it repeats. The id of a large body takes long, and is
  // computed after the verification.
  if (body.length <= largeBodyBytes) arrival.deliveryId = idOf()
  const verification = await verifyBytes(exchange, body, deps.clock())
  if (!verification.ok) {
    const { cause: reason } = verification
    if (reason === 'no_matching_secret') deps.onUnknownKey(source)
    return new Refusal(401, 'invalid_signature', 'the signature or its time is not valid', { reason })
  }
  const { timestampSeconds, keyName } = verification
  // Without a key name, the log bounds an unsigned arrival like the refused ones.
  if (promises.signed) arrival.keyName = keyName
  // A repeated traceparent is ignored.
  const { traceparent } = req.headers
  if (typeof traceparent === 'string') arrival.traceparent = traceparent
  arrival.verifiedMs = performance.now() - started
  const delivery = toDelivery({
    source,
    id: (arrival.deliveryId ??= idOf()),
    webhookId,
    keyName,
    environment: signedEnvironment(keys, keyName),
    timestampSeconds,
    receivedAt: arrival.arrivedAt,
    headers: withPath(keptHeaders(req, promises.signatureHeaders), req, source),
    body,
  })
  arrival.requestId = delivery.requestId
  arrival.reason = delivery.parkReason ?? (promises.signed ? undefined : 'unsigned')
  return delivery
}

/** Verifies the bytes of a small body at once, and those of a large one in turns. */
async function verifyBytes(exchange: Exchange, body: Buffer, now: Date): Promise<SourceVerification> {
  const {
    req,
    source: { kind, secrets },
    arrival,
    header,
  } = exchange
  // The time at which the body is complete counts, since a large body may wait for its turn.
  const nowSeconds = Math.floor(now.getTime() / 1000)
  const steps = kind.verify({ header, body }, secrets, nowSeconds)
  const isLarge = body.length > largeBodyBytes
  const verification = isLarge ? await inTurns(unlessGone(req, steps)) : atOnce(steps)
  if (verification.timestampSeconds !== undefined) arrival.skewSeconds = nowSeconds - verification.timestampSeconds
  arrival.timestampMismatch = verification.ok && verification.timestampMismatch === true
  return verification
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

/** Adds the path of another source than the first, with the submit that the webhook belongs to. */
function withPath(headers: Record<string, string>, req: Request, source: Source): Record<string, string> {
  const sourceName = storedName(source)
  if (sourceName === null) return headers
  const { generation } = pathIn({ [pathHeader]: `${req.path}${new URL(req.url, 'http://x').search}` })
  return { ...headers, [pathHeader]: webhookPath(sourceName, generation) }
}

function refuseContentEncoding(req: IncomingMessage): void {
  const encoding = req.headers['content-encoding']
  if (encoding === undefined || encoding.toLowerCase() === 'identity') return
  const message = 'the body must be sent without Content-Encoding: the signature covers the bytes as sent'
  throw new Refusal(415, 'unsupported_encoding', message)
}
