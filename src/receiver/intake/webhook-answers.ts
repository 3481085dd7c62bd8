import type { IncomingMessage, ServerResponse } from 'node:http'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import { discardRest } from '../../platform/http/turns.ts'

export type Acceptance = 'accepted' | 'duplicate' | 'parked'

/** A refusal. The answer has the code and the message. Only the log has the `reason`, which is the code by default. */
export class Refusal extends HttpError {
  reason: string
  constructor(
    status: number,
    code: string,
    message: string,
    more: { reason?: string; headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    super(status, code, message, more.headers ? { headers: more.headers } : {})
    this.reason = more.reason ?? code
    this.cause = more.cause
  }
}

/** The refusal of a delivery that is not known to be durable. The provider sends it again. */
export function unavailable(
  reason: string,
  { what = 'the delivery could not be stored', cause }: Unavailable = {},
): Refusal {
  return new Refusal(503, 'unavailable', `${what}: send it again later`, {
    reason,
    headers: { 'retry-after': '5' },
    cause,
  })
}

type Unavailable = { what?: string; cause?: unknown }

/** The reason of a refusal after which the rest is not read: reading tiny chunks costs more than sending them. */
export const tooManyChunks = 'too_many_chunks'

const answerOf = (status: Acceptance | 'hint') => {
  const body = JSON.stringify({ status })
  return { body, headers: headersOf(body) }
}
const headersOf = (body: string) => ({
  'content-type': 'application/json; charset=utf-8',
  'content-length': String(Buffer.byteLength(body)),
})
// Built once, since thousands are sent per second.
const acknowledgements = {
  accepted: answerOf('accepted'),
  duplicate: answerOf('duplicate'),
  parked: answerOf('parked'),
  hint: answerOf('hint'),
}

export function acknowledge(res: ServerResponse, outcome: Acceptance | 'hint'): void {
  const { headers, body } = acknowledgements[outcome]
  res.writeHead(200, headers).end(body)
}

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
  if (refusal.reason === tooManyChunks) return void res.end(body)
  res.write(body)
  discardRest(req, () => res.end())
}
