import http from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { answerUnderWay, latestRequest } from './connections.ts'

/** An answer that is sent before any handler runs, in the spec's envelope. It closes the connection. */
export type FramingAnswer = { status: number; code: string; message: string; allow?: string }

const badRequest = (message: string): FramingAnswer => ({ status: 400, code: 'bad_request', message })

const answers = {
  version: badRequest('only HTTP/1.1 and HTTP/1.0 are supported'),
  host: badRequest('a request must have exactly one Host header'),
  target: badRequest('the request target must be a path or an http URL'),
  expectation: { status: 417, code: 'expectation_failed', message: 'the only supported Expect value is 100-continue' },
  connect: {
    status: 405,
    code: 'method_not_allowed',
    message: 'CONNECT is not supported: this server is not a proxy',
    allow: 'GET, HEAD, POST',
  },
  malformed: badRequest('the request is not valid HTTP'),
} as const satisfies Record<string, FramingAnswer>

const framingErrors: Record<string, FramingAnswer> = {
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, code: 'request_timeout', message: 'the request did not arrive in time' },
  HPE_HEADER_OVERFLOW: { status: 431, code: 'headers_too_large', message: 'the request headers are too large' },
}

export type OnRefused = (answer: FramingAnswer, socket: Socket, reason: string | undefined) => void

/** `onUnused` is called when a connection closes without any request. */
export type OnBadFraming = { onRefused: OnRefused; onUnused: () => void }

function headersAndBody({ code, message, allow }: FramingAnswer) {
  const body = JSON.stringify({ error: { type: 'invalid_request_error', code, message } })
  const headers = {
    connection: 'close',
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(allow && { allow }),
  }
  return { headers, body }
}

/** Passes on proper requests, with a URL in the request line cut to its path (RFC 9112, 3.2.2). */
export function properRequests(handler: http.RequestListener, onRefused: OnRefused): http.RequestListener {
  return (req, res) => {
    const improper = improperIn(req)
    if (improper === undefined) return handler(req, res)
    onRefused(improper, req.socket, undefined)
    answer(res, improper)
  }
}

export function refuseExpectation(onRefused: OnRefused): http.RequestListener {
  return (req, res) => {
    onRefused(answers.expectation, req.socket, undefined)
    answer(res, answers.expectation)
  }
}

/** Answers without reading the body, so the connection must close. */
function answer(res: http.ServerResponse, given: FramingAnswer): void {
  const { headers, body } = headersAndBody(given)
  res.writeHead(given.status, headers).end(body)
}

function improperIn(req: http.IncomingMessage): FramingAnswer | undefined {
  if (req.httpVersionMajor !== 1) return answers.version
  const hosts = countHosts(req.rawHeaders)
  if (hosts > 1 || (hosts === 0 && req.httpVersionMinor > 0)) return answers.host
  // HTTP/1.0 has no chunked encoding. A proxy might see another end of the body (RFC 9112, 6.1).
  if (req.httpVersionMinor === 0 && req.headers['transfer-encoding'] !== undefined) return answers.malformed
  const { url = '' } = req
  if (url.startsWith('/') || (url === '*' && req.method === 'OPTIONS')) return undefined
  const path = pathOfUrl(url)
  if (path === undefined) return answers.target
  req.url = path
  return undefined
}

/** Counts the Host headers as they were sent. Node keeps only the first in `headers`. */
function countHosts(rawHeaders: readonly string[]): number {
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ''
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1
  }
  return hosts
}

const httpUrl = /^https?:\/\/[^/?#]+(?<path>\/[^?#]*)?(?<query>\?[^#]*)?/i

/** Cuts the path out of the text. Parsing and printing a URL could change it. */
function pathOfUrl(url: string): string | undefined {
  const parts = URL.canParse(url) ? httpUrl.exec(url)?.groups : undefined
  return parts && `${parts['path'] ?? '/'}${parts['query'] ?? ''}`
}

/** The longest wait for earlier answers, because an event stream has no end. */
const answersMs = 30_000
const refused = new WeakSet<Socket>()

/** Answers a request that the parser cannot read or that timed out, after all complete requests before it. */
export function answerBadFraming(
  error: NodeJS.ErrnoException,
  socket: Socket,
  { onRefused, onUnused }: OnBadFraming,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
  // A load balancer may open a connection ahead. It would take our answer for that of its next request.
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && socket.bytesRead === 0) {
    onUnused()
    return void socket.destroy()
  }
  // The rest is unreadable too, and the parser reports an error for each piece.
  if (refused.has(socket)) return
  refused.add(socket)
  closeWithin(socket, answersMs)
  afterCompleteRequests(socket, () => {
    if (isAnsweredAlready(socket)) return endSoon(socket)
    const given = framingErrors[error.code ?? ''] ?? answers.malformed
    onRefused(given, socket, error.code)
    endSoon(socket, given)
  })
}

/** Answers CONNECT, for which Node detaches the parser from the connection. */
export function answerConnect(socket: Duplex, onRefused: OnRefused): void {
  if (!isSocket(socket)) return void socket.destroy()
  socket.on('error', () => socket.destroy()).resume()
  closeWithin(socket, answersMs)
  afterCompleteRequests(socket, () => {
    onRefused(answers.connect, socket, undefined)
    endSoon(socket, answers.connect)
  })
}

function isSocket(stream: Duplex): stream is Socket {
  return 'destroySoon' in stream
}

function closeWithin(socket: Socket, ms: number): void {
  const timer = setTimeout(() => socket.destroy(), ms)
  socket.once('close', () => clearTimeout(timer))
}

function afterCompleteRequests(socket: Socket, then: () => void): void {
  if (!socket.writable) return void socket.destroy()
  const underWay = answerUnderWay(socket)
  if (!underWay?.req.complete) return then()
  underWay.once('close', () => afterCompleteRequests(socket, then))
}

/** True if an incomplete request has been answered. A second answer would be taken for another request's. */
function isAnsweredAlready(socket: Socket): boolean {
  const underWay = answerUnderWay(socket)
  if (underWay) return underWay.headersSent
  return latestRequest(socket)?.complete === false
}

/** Sends the answer, if there is one, and ends the connection. Cuts it after 2 s, in which the sender can read. */
function endSoon(socket: Socket, given?: FramingAnswer): void {
  closeWithin(socket, 2000)
  if (!given) return void socket.end()
  const { headers, body } = headersAndBody(given)
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${given.status} ${http.STATUS_CODES[given.status]}\r\n${lines.join('')}\r\n${body}`)
}
