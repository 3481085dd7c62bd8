import type { IncomingMessage, ServerResponse } from 'node:http'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import { UnavailableError, type Acceptance } from './accept.ts'
import { BodyError, freeBytes, waitForTurn, type BodyRefusal } from './body-reader.ts'

const retryAfterSeconds = '5'
/** The reason of an unexpected error. */
export const internalError = 'internal_error'

/** A refusal. `reason` is logged, and is the sent code unless `more.reason` is given, which is never sent. */
export class Refusal extends HttpError {
  reason: string
  constructor(
    status: number,
    code: string,
    message: string,
    more: { reason?: string; headers?: Record<string, string> } = {},
  ) {
    super(status, code, message, more.headers ? { headers: more.headers } : {})
    this.reason = more.reason ?? code
  }
}

// Built once, since thousands are sent per second.
const acceptanceBodies = {
  accepted: '{"status":"accepted"}',
  duplicate: '{"status":"duplicate"}',
  parked: '{"status":"parked"}',
  hint: '{"status":"hint"}',
} as const
const headersOf = (body: string) => ({
  'content-type': 'application/json; charset=utf-8',
  'content-length': String(Buffer.byteLength(body)),
})
const acceptanceHeaders = {
  accepted: headersOf(acceptanceBodies.accepted),
  duplicate: headersOf(acceptanceBodies.duplicate),
  parked: headersOf(acceptanceBodies.parked),
  hint: headersOf(acceptanceBodies.hint),
}

export function answerAcceptance(res: ServerResponse, acceptance: Acceptance | 'hint'): void {
  res.writeHead(200, acceptanceHeaders[acceptance]).end(acceptanceBodies[acceptance])
}

/** Returns the answer to a failure of a delivery. */
export function refusalOf(error: unknown, maxBodyBytes: number): Refusal {
  if (error instanceof Refusal) return error
  if (error instanceof BodyError) return bodyRefusal(error.code, maxBodyBytes)
  const reason = error instanceof UnavailableError ? error.reason : internalError
  return unavailable('the delivery could not be stored: send it again later', reason)
}

function bodyRefusal(reason: BodyRefusal, maxBodyBytes: number): Refusal {
  switch (reason) {
    case 'payload_too_large':
      return new Refusal(413, 'payload_too_large', `the body is larger than ${maxBodyBytes} bytes`)
    case 'too_many_chunks':
      return new Refusal(
        413,
        'payload_too_large',
        'the body comes in more chunks than its length allows: send larger ones',
        {
          reason,
        },
      )
    case 'too_slow':
      return new Refusal(408, 'request_timeout', 'the body did not arrive in time', { reason })
    case 'too_much_being_received':
      return unavailable('too much is being received: send it again later', reason)
    case 'aborted':
      return new Refusal(400, 'bad_request', 'the body did not arrive completely', { reason })
    default:
      return reason satisfies never
  }
}

function unavailable(message: string, reason: string): Refusal {
  return new Refusal(503, 'unavailable', message, { reason, headers: { 'retry-after': retryAfterSeconds } })
}

const tooManyChunks: BodyRefusal = 'too_many_chunks'

/**
 * Answers a refusal. If the body is still arriving, the connection is closed a little later, since a sender that is cut
 * off while it writes never sees the answer.
 */
export function answerRefusal(req: IncomingMessage, res: ServerResponse, refusal: Refusal): void {
  if (res.destroyed) return
  const body = JSON.stringify(errorBody(refusal))
  const headers = { ...refusal.headers, ...headersOf(body) }
  if (req.complete) return void res.writeHead(refusal.status, headers).end(body)
  res.writeHead(refusal.status, { ...headers, connection: 'close' })
  // Reading tiny chunks costs more than sending them, so the rest is not read.
  if (refusal.reason === tooManyChunks) return void res.end(body)
  res.write(body)
  drain(req, () => res.end())
}

function drain(req: IncomingMessage, end: () => void): void {
  let bytes = 0
  let chunks = 0
  const stop = () => {
    clearTimeout(timer)
    req.off('data', count).off('end', stop).off('close', stop)
    req.resume()
    end()
  }
  const count = (chunk: Buffer) => {
    bytes += chunk.length
    chunks += 1
    if (bytes > 4 * 1024 * 1024 || chunks > 1024) stop()
    else if (bytes > freeBytes) waitForTurn(req)
  }
  const timer = setTimeout(stop, 2000)
  req.on('data', count).on('end', stop).on('close', stop)
}
