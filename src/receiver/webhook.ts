import type { IncomingMessage } from 'node:http'
import type { IRouter, Request, RequestHandler, Response } from 'express'
import getRawBody from 'raw-body'
import { HttpError, methodNotAllowed, sendError } from '../runtime/http.ts'
import { verify, type RefusalCause } from '../wire/signature.ts'
import { type Acceptance, type Acceptor, UnavailableError } from './accept.ts'
import { deliveryId, toDelivery, webhookIdPattern } from './delivery.ts'
import type { Keys } from './keys.ts'

/** What is known of one HTTP arrival when it has been answered: for the log, the metrics and the console. */
export type Arrival = {
  arrivedAt: Date
  outcome: Acceptance | 'refused' | 'unavailable'
  reason: string | undefined
  status: number
  webhookId: string | undefined
  deliveryId: string | undefined
  requestId: string | undefined
  keyName: string | undefined
  remote: string | undefined
  bytes: number | undefined
  skewSeconds: number | undefined
  timestampMismatch: boolean
  ackMs: number
}

export type Refused = { arrivedAt: Date; reason: string; webhookId: string | undefined; headers: Record<string, string>; body: Buffer }

export type WebhookDeps = {
  keys: () => Keys
  acceptor: Pick<Acceptor, 'accept'>
  maxBodyBytes: number
  clock: () => Date
  /** Called once for each arrival, after its answer. */
  onArrival: (arrival: Arrival) => void
  /** Called with what was refused for its id or signature. */
  onRefused: (refused: Refused) => void
}

const retryAfterSeconds = 5

/**
 * `POST /webhooks`. Authentic means kept, not authentic means nothing of it is
 * trusted, not durable means not acknowledged. The order is: limits, raw bytes,
 * header syntax, HMAC over the bytes, accept, answer.
 */
export function mountWebhooks(app: IRouter, deps: WebhookDeps): void {
  app.post('/webhooks', receive(deps))
  app.all('/webhooks', methodNotAllowed('POST'))
}

// Written thousands of times a second: made once.
const acceptanceBodies = { accepted: '{"status":"accepted"}', duplicate: '{"status":"duplicate"}', parked: '{"status":"parked"}' } as const
const headersOf = (body: string) => ({ 'content-type': 'application/json; charset=utf-8', 'content-length': String(Buffer.byteLength(body)) })
const acceptanceHeaders = {
  accepted: headersOf(acceptanceBodies.accepted),
  duplicate: headersOf(acceptanceBodies.duplicate),
  parked: headersOf(acceptanceBodies.parked),
}

function receive(deps: WebhookDeps): RequestHandler {
  return async (req, res) => {
    const started = performance.now()
    const arrival = newArrival(req, deps.clock())
    try {
      const acceptance = await take(deps, req, arrival)
      arrival.outcome = acceptance
      arrival.status = 200
      res.writeHead(200, acceptanceHeaders[acceptance]).end(acceptanceBodies[acceptance])
    } catch (error) {
      if (req.destroyed && !req.complete) noteAborted(arrival)
      else answerRefusal(res, arrival, error)
      stopReading(req)
    }
    arrival.ackMs = performance.now() - started
    deps.onArrival(arrival)
  }
}

function newArrival(req: Request, arrivedAt: Date): Arrival {
  return {
    arrivedAt,
    outcome: 'refused',
    reason: undefined,
    status: 0,
    webhookId: undefined,
    deliveryId: undefined,
    requestId: undefined,
    keyName: undefined,
    remote: req.ip,
    bytes: undefined,
    skewSeconds: undefined,
    timestampMismatch: false,
    ackMs: 0,
  }
}

/** Takes one delivery in; throws HttpError or UnavailableError, and notes on `arrival` all that it learns on the way. */
async function take(deps: WebhookDeps, req: Request, arrival: Arrival): Promise<Acceptance> {
  const claimedIds = valuesOf(req, 'x-service-webhook-id')
  arrival.webhookId = claimedIds[0]?.slice(0, 255)
  const body = await readBody(req, deps.maxBodyBytes)
  arrival.bytes = body.length

  const [webhookId] = claimedIds
  if (webhookId === undefined || claimedIds.length > 1 || !webhookIdPattern.test(webhookId)) {
    deps.onRefused(refused(req, arrival, 'invalid_webhook_id', body))
    throw new Refusal(400, 'invalid_webhook_id', 'X-Service-Webhook-Id must be given once, as 1 to 255 visible ASCII characters')
  }
  const id = deliveryId(webhookId, body)
  arrival.deliveryId = id

  const verification = verifyHeaders(req, body, deps, arrival)
  if (!verification.ok) {
    deps.onRefused(refused(req, arrival, verification.cause, body))
    throw new Refusal(401, 'invalid_signature', 'the signature or its time is not valid', verification.cause)
  }
  arrival.keyName = verification.keyName

  const { timestampSeconds, keyName } = verification
  const delivery = toDelivery({ id, webhookId, keyName, timestampSeconds, receivedAt: arrival.arrivedAt, headers: keptHeaders(req), body })
  arrival.requestId = delivery.requestId
  arrival.reason = delivery.parkReason
  return deps.acceptor.accept(delivery)
}

/** A refusal whose exact reason goes to the log and never to the sender. */
class Refusal extends HttpError {
  reason: string
  constructor(status: number, code: string, message: string, reason: string = code) {
    super(status, code, message)
    this.reason = reason
  }
}

type HeaderVerification = { ok: true; keyName: string; timestampSeconds: number } | { ok: false; cause: RefusalCause | 'missing_header' }

function verifyHeaders(req: IncomingMessage, body: Buffer, { keys, clock }: WebhookDeps, arrival: Arrival): HeaderVerification {
  const [header, ...more] = valuesOf(req, 'x-service-signature')
  if (header === undefined) return { ok: false, cause: 'missing_header' }
  if (more.length > 0) return { ok: false, cause: 'malformed_header' }
  const nowSeconds = Math.floor(clock().getTime() / 1000)
  const verification = verify(body, header, keys().secrets, nowSeconds)
  if (verification.timestampSeconds !== undefined) {
    arrival.skewSeconds = nowSeconds - verification.timestampSeconds
    const told = req.headers['x-service-timestamp']
    arrival.timestampMismatch = verification.ok && told !== undefined && Number(told) !== verification.timestampSeconds
  }
  return verification
}

async function readBody(req: Request, limit: number): Promise<Buffer> {
  const encoding = req.headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new Refusal(415, 'unsupported_encoding', 'the body must be sent without Content-Encoding: the signature covers the bytes as sent')
  }
  try {
    return await getRawBody(req, { length: req.headers['content-length'] ?? null, limit })
  } catch (error) {
    const type = error instanceof Error && 'type' in error ? error.type : undefined
    if (type === 'entity.too.large') throw new Refusal(413, 'payload_too_large', `the body is larger than ${limit} bytes`)
    throw new Refusal(400, 'bad_request', 'the body did not arrive whole', typeof type === 'string' ? type : 'unreadable_body')
  }
}

function answerRefusal(res: Response, arrival: Arrival, error: unknown): void {
  if (error instanceof Refusal) {
    arrival.status = error.status
    arrival.reason = error.reason
    return sendError(res, error)
  }
  arrival.outcome = 'unavailable'
  arrival.status = 503
  arrival.reason = error instanceof UnavailableError ? error.reason : 'internal_error'
  const headers = { 'retry-after': String(retryAfterSeconds) }
  return sendError(res, new HttpError(503, 'unavailable', 'the delivery could not be stored; send it again later', { headers }))
}

/** The one line that an arrival leaves in the log, with the ids that a person would search for. */
export function logLine(arrival: Arrival): Record<string, unknown> {
  const { status, outcome, reason, webhookId, deliveryId, requestId, keyName, remote, bytes, skewSeconds, ackMs } = arrival
  return {
    status,
    outcome,
    reason,
    ms: Math.round(ackMs * 10) / 10,
    webhook_id: webhookId,
    delivery_id: deliveryId,
    request_id: requestId,
    key_name: keyName,
    remote,
    bytes,
    skew_seconds: skewSeconds,
  }
}

function noteAborted(arrival: Arrival): void {
  arrival.status = 400
  arrival.reason = 'aborted'
}

const drainMs = 2000

/** A sender that is cut off while it still writes never sees our answer: let it finish, but not for long. */
function stopReading(req: Request): void {
  if (req.complete) return
  const timer = setTimeout(() => req.socket.destroy(), drainMs)
  req.once('close', () => clearTimeout(timer))
  req.resume()
}

/** Every value that was sent of one header; node's own `headersDistinct` makes lists of all of them. `name` is in lower case. */
function valuesOf({ rawHeaders }: IncomingMessage, name: string): string[] {
  const values: string[] = []
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const given = rawHeaders[at] ?? ''
    if (given.length === name.length && given.toLowerCase() === name) values.push(rawHeaders[at + 1] ?? '')
  }
  return values
}

const credentialHeaders = new Set(['x-service-signature', 'authorization', 'x-api-key', 'cookie', 'proxy-authorization'])

function keptHeaders(req: IncomingMessage): Record<string, string> {
  const kept: Record<string, string> = {}
  const { headers } = req
  for (const name of Object.keys(headers)) {
    const value = headers[name]
    if (value !== undefined) kept[name] = credentialHeaders.has(name) ? '[redacted]' : String(value)
  }
  return kept
}

function refused(req: IncomingMessage, { arrivedAt, webhookId }: Arrival, reason: string, body: Buffer): Refused {
  const headers = keptHeaders(req)
  // Needed to verify it again; the table is the only place that it is kept in.
  const signatures = valuesOf(req, 'x-service-signature')
  if (signatures.length === 1) headers['x-service-signature'] = signatures[0] ?? ''
  return { arrivedAt, reason, webhookId, headers, body }
}
