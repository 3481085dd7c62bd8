import type { IncomingMessage } from 'node:http'
import type { IRouter, Request, Response } from 'express'
import { proveConnection } from '../../platform/http/connections.ts'
import { methodNotAllowed } from '../../platform/http/http.ts'
import { noteForLog, type LogNote } from '../../platform/http/request-log.ts'
import { deliveryId, toDelivery, type Delivery } from '../domain/delivery.ts'
import { signedEnvironment, type Keys } from '../domain/keys.ts'
import {
  atOnce,
  type Arrived,
  type Arriving,
  type Source,
  type SourceVerification,
  storedName,
  type Steps,
} from '../domain/source.ts'
import { pathHeader, pathIn, webhookPath } from '../domain/webhook-path.ts'
import type { Acceptance, Acceptor } from './accept.ts'
import { BodyError, createBodyReader, createTurns, largeBodyBytes, type BodyReader } from './body-reader.ts'
import { headersToVerify, keptHeaders, startOf, valuesOf } from './request-headers.ts'
import { answerAcceptance, answerRefusal, internalError, Refusal, refusalOf } from './webhook-answers.ts'

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
 * The order is: limits, raw bytes, header syntax, HMAC over the bytes, accept, answer. Only for the log, the id is read
 * before the body.
 */
export function mountWebhooks(app: IRouter, deps: WebhookDeps): void {
  const intake = { reader: createBodyReader(deps), inTurns: createTurns() }
  const receiveAt = receive(deps, intake)
  app.post('/webhooks', async (req, res) => {
    const keys = deps.keys()
    return receiveAt(req, res, { keys, source: keys.first })
  })
  app.all('/webhooks', methodNotAllowed('POST'))
  app.all('/webhooks/:source', (req, res, next) => {
    const keys = deps.keys()
    const source = keys.sources.get(req.params.source)
    if (source === undefined) return next()
    return req.method === 'POST' ? receiveAt(req, res, { keys, source }) : methodNotAllowed('POST')(req, res, next)
  })
}

/** Shared by all deliveries: one budget of bytes, and verification of large bodies one at a time. */
type Intake = { reader: BodyReader; inTurns: ReturnType<typeof createTurns> }

/** Keys are read once, since SIGHUP may replace them while a body arrives. */
type Addressed = { keys: Keys; source: Source }

type Receive = (req: Request, res: Response, addressed: Addressed) => Promise<void>

function receive(deps: WebhookDeps, intake: Intake): Receive {
  return async (req, res, { keys, source }) => {
    const started = performance.now()
    const arrival = newArrival(req, { arrivedAt: deps.clock(), source })
    // Silent until the outcome is known, since the client may disconnect before.
    noteForLog(res, 'silent')
    try {
      const delivery = await admit(deps, intake, { req, res, keys, source, arrival, started })
      const acceptance = source.kind.promises.signed
        ? await deps.acceptor.accept(delivery)
        : noteUnsigned(deps, delivery)
      arrival.outcome = acceptance
      arrival.status = 200
      answerAcceptance(res, acceptance)
      proveConnection(req.socket)
    } catch (error) {
      const refusal = refusalOf(error, deps.maxBodyBytes)
      arrival.outcome = refusal.status === 503 ? 'unavailable' : 'refused'
      arrival.status = refusal.status
      arrival.reason = refusal.reason
      if (refusal.reason === internalError) deps.onFault(error, arrival)
      answerRefusal(req, res, refusal)
    }
    arrival.ackMs = performance.now() - started
    noteForLog(res, deps.onArrival(arrival))
  }
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

type Exchange = Addressed & { req: Request; res: Response; arrival: Arrival; started: number }

/** Returns the delivery of an admitted arrival, or throws the refusal. Records on `arrival` everything learnt on the way. */
async function admit(
  deps: WebhookDeps,
  intake: Intake,
  { req, res, keys, source, arrival, started }: Exchange,
): Promise<Delivery> {
  const { identify, promises } = source.kind
  const header = (name: string) => valuesOf(req, name)
  const identityOf = (arriving: Arriving) => {
    const identity = identify(arriving)
    const claimed = identity.ok ? identity.webhookId : identity.claimed
    arrival.webhookId = claimed === undefined ? undefined : startOf(claimed, 255)
    return identity
  }
  // Before the body, so that the log names also a delivery whose body does not arrive.
  let identity = identityOf({ header })
  refuseContentEncoding(req)
  const { body, release } = await intake.reader.read(req, res)
  try {
    arrival.bytes = body.length
    arrival.readMs = performance.now() - started
    const refuse = (refusal: Refusal): never => {
      const { arrivedAt, remote } = arrival
      deps.onRefused({
        arrivedAt,
        remote,
        webhookId: arrival.webhookId,
        reason: refusal.reason,
        headers: () => withPath(headersToVerify(req, promises.signatureHeaders), req, source),
        body,
      })
      throw refusal
    }
    if (!identity.ok) identity = identityOf({ header, body })
    if (!identity.ok) return refuse(new Refusal(400, 'invalid_webhook_id', identity.message))
    const { webhookId } = identity
    // So the log shows a refused arrival beside the delivery that it repeats. The id of a large body takes long, and is
    // computed after the verification.
    if (body.length <= largeBodyBytes) arrival.deliveryId = deliveryId(webhookId, body, arrival.sourceName)
    const verification = await verifyBytes(req, { header, body }, { ...intake, clock: deps.clock, source, arrival })
    if (!verification.ok) {
      if (verification.cause === 'no_matching_secret') deps.onUnknownKey(source)
      return refuse(
        new Refusal(401, 'invalid_signature', 'the signature or its time is not valid', { reason: verification.cause }),
      )
    }
    const id = (arrival.deliveryId ??= deliveryId(webhookId, body, arrival.sourceName))
    const { timestampSeconds, keyName } = verification
    // Without a key name, the log bounds an unsigned arrival like the refused ones.
    if (promises.signed) arrival.keyName = keyName
    arrival.traceparent = traceparentOf(req)
    arrival.verifiedMs = performance.now() - started
    const delivery = toDelivery({
      source,
      id,
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
  } finally {
    release()
  }
}

/** Adds the path of another source than the first, with the submit that the webhook belongs to. */
function withPath(headers: Record<string, string>, req: Request, source: Source): Record<string, string> {
  const sourceName = storedName(source)
  if (sourceName === null) return headers
  const { generation } = pathIn({ [pathHeader]: `${req.path}${new URL(req.url, 'http://x').search}` })
  return { ...headers, [pathHeader]: webhookPath(sourceName, generation) }
}

type Verifying = { inTurns: Intake['inTurns']; clock: () => Date; source: Source; arrival: Arrival }

async function verifyBytes(
  req: IncomingMessage,
  arrived: Arrived,
  { inTurns, clock, source: { kind, secrets }, arrival }: Verifying,
): Promise<SourceVerification> {
  // The time at which the body is complete counts, since a large body may wait for its turn.
  const nowSeconds = Math.floor(clock().getTime() / 1000)
  const steps = kind.verify(arrived, secrets, nowSeconds)
  const isLarge = arrived.body.length > largeBodyBytes
  const verification = isLarge ? await inTurns(unlessGone(req, steps)) : atOnce(steps)
  if (verification.timestampSeconds !== undefined) arrival.skewSeconds = nowSeconds - verification.timestampSeconds
  arrival.timestampMismatch = verification.ok && verification.timestampMismatch === true
  return verification
}

/** Ends the verification if the client has disconnected. */
function* unlessGone<Result>(req: IncomingMessage, steps: Steps<Result>): Steps<Result> {
  for (;;) {
    if (req.socket.destroyed) throw new BodyError('aborted')
    const step = steps.next()
    if (step.done === true) return step.value
    yield
  }
}

function refuseContentEncoding(req: IncomingMessage): void {
  const encoding = req.headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new Refusal(
      415,
      'unsupported_encoding',
      'the body must be sent without Content-Encoding: the signature covers the bytes as sent',
    )
  }
}

/** Returns the traceparent. A repeated one is ignored. */
function traceparentOf({ headers: { traceparent } }: IncomingMessage): string | undefined {
  return typeof traceparent === 'string' ? traceparent : undefined
}
