import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express'
import { createLineBudget } from '../line-budget.ts'
import type { Logger } from '../logger.ts'
import { boundConnections, boundRequests } from './connections.ts'
import { answerBadFraming, answerConnect, type OnRefused, properRequests, refuseExpectation } from './framing.ts'
import { endConnectionsFrom, takeWaitingConnections } from './retiring.ts'

/** An expected failure with its answer. Handlers throw it, and one error handler converts it to the envelope. */
export class HttpError extends Error {
  override name = 'HttpError'
  status: number
  type: string
  code: string
  headers: Record<string, string>
  constructor(
    status: number,
    code: string,
    message: string,
    more: { type?: string; headers?: Record<string, string> } = {},
  ) {
    super(message)
    this.status = status
    this.code = code
    this.type = more.type ?? (status >= 500 ? 'api_error' : 'invalid_request_error')
    this.headers = more.headers ?? {}
  }
}

/** The answer to an unexpected error, which is logged. */
export function internalError(): HttpError {
  return new HttpError(500, 'internal_error', 'something failed on our side; the log has the details')
}

export function errorBody({ type, code, message }: { type: string; code: string; message: string }) {
  return { error: { type, code, message } }
}

/** Sends an error. `message` may be a translation of the error's own message. */
export function sendError(res: Response, error: HttpError, message = error.message): void {
  const { status, headers, type, code } = error
  res.status(status).set(headers).json(errorBody({ type, code, message }))
}

export const notFound: RequestHandler = (req) => {
  throw new HttpError(404, 'not_found', `there is nothing at ${req.method} ${req.originalUrl.split('?', 1)[0]}`)
}

/** Refuses a call with 405 and these methods in `Allow`. Stands after their handlers in a router. */
export function methodNotAllowed(...allowed: string[]): RequestHandler {
  return (req) => {
    const message = `${req.method} is not possible here, use ${allowed.join(', ')}`
    throw new HttpError(405, 'method_not_allowed', message, { headers: { allow: allowed.join(', ') } })
  }
}

/** Translates an error message to the caller's language. */
export type Localize = (req: Request, res: Response, message: string) => string

/** The error handler of every app but the webhook routes. Unexpected errors are logged and answered 500. */
export function errorHandler(
  logger: Logger,
  localize: Localize = (_req, _res, message) => message,
): ErrorRequestHandler {
  return (error, req, res, next) => {
    if (res.headersSent) return next(error)
    endWithoutBody(req)
    const known =
      error instanceof URIError ? new HttpError(404, 'not_found', 'the path is not valid percent-encoding') : error
    const isExpected = known instanceof HttpError
    if (!isExpected)
      logger.error({ err: error, method: req.method, path: req.path }, 'unexpected error while answering')
    const answer = isExpected ? known : internalError()
    sendError(res, answer, localize(req, res, answer.message))
  }
}

/** Leaves a refused request 2 s for the rest of its body, so that its sender sees the answer. */
function endWithoutBody(req: http.IncomingMessage): void {
  const hasBody = req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
  if (req.complete || !hasBody) return
  const timer = setTimeout(() => req.socket.destroy(), 2000)
  req.once('end', () => clearTimeout(timer)).once('close', () => clearTimeout(timer))
}

export type Listener = {
  url: string
  port: number
  server: http.Server
  /** Stops accepting connections, waits up to `graceMs` for answers in progress, then cuts the rest. */
  close: (graceMs: number) => Promise<void>
}

/** The listener cannot bind its address. The message gives the reason and the setting to change. */
export class ListenError extends Error {
  override name = 'ListenError'
  code = 'listen' as const
}

/** Why a port cannot be opened, and what to do. The setting of the host has the same prefix as that of the port. */
const listenFailures: Record<string, (setting: string) => string> = {
  EADDRINUSE: (setting) => `is in use by another program: set ${setting} to a free port`,
  EACCES: (setting) => `needs privileges that this process does not have: set ${setting} to a port from 1024 on`,
  EADDRNOTAVAIL: (setting) =>
    `cannot be opened, because this machine does not have the address: correct ${setting.replace(/PORT$/, 'HOST')}`,
}

export type ListenOptions = {
  handler: http.RequestListener
  host: string
  port: number
  /** The setting of this listener's port, named in the error message. */
  setting: string
  logger: Logger
  /** Keep-alive of idle connections. Must be longer than the keep-alive of the proxy in front. */
  keepAliveSeconds?: number
  /** Limit of a whole request. Default: 30 s. */
  requestTimeoutMs?: number
  /** Aborts before the listener closes. From then on each answer closes its connection. */
  retired?: AbortSignal
  /** True if the handler sends `100 Continue` itself. Otherwise it is sent before the handler runs. */
  continues?: boolean
  /** True if a sender that closed its side still gets its answer. Not for handlers that wait long. */
  halfOpen?: boolean
  /** Called with the reason for each connection that the listener closes because of its client. */
  onClosed?: (reason: string) => void
}

/**
 * Starts a listener. By default, headers must arrive within 10 s and the whole request within 30 s, and keep-alive is
 * longer than the usual 60 s of load balancers, so that the listener does not close first. For the shutdown, see
 * endConnectionsFrom().
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const { handler, host, port, setting, logger, retired, onClosed } = options
  const { keepAliveSeconds = 75, requestTimeoutMs = 30_000, continues = false, halfOpen = false } = options
  const mayLog = createLineBudget({ logger, what: 'malformed or slow requests' })
  const closing = (reason: string, socket: Socket, message: string, facts: object) => {
    if (mayLog()) logger.info({ ...facts, remote: socket.remoteAddress }, message)
    onClosed?.(reason)
  }
  const onRefused: OnRefused = ({ status, code }, socket, reason = code) =>
    closing(code, socket, 'malformed or slow request refused', { status, reason })
  const bounded = (given: http.RequestListener) =>
    boundRequests(given, (socket) =>
      closing('pipelining', socket, 'connection closed: too many unanswered requests', {}),
    )
  const server = http.createServer({
    headersTimeout: Math.min(10_000, requestTimeoutMs),
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveSeconds * 1000,
    connectionsCheckingInterval: 500,
    requireHostHeader: false,
  })
  const open = boundConnections(server, { onClosed: () => onClosed?.('too_many_connections') })
  const ending = retired ? endConnectionsFrom(retired, open) : (given: http.RequestListener) => given
  const requests = bounded(ending(properRequests(handler, onRefused)))
  server.on('request', requests)
  Object.assign(server, { httpAllowHalfOpen: halfOpen })
  server.on('clientError', (error: NodeJS.ErrnoException, socket) =>
    answerBadFraming(error, socket as Socket, { onRefused, onUnused: () => onClosed?.('unused') }),
  )
  server.on('connect', (_req, socket) => answerConnect(socket, onRefused))
  server.on('checkExpectation', bounded(refuseExpectation(onRefused)))
  if (continues) server.on('checkContinue', requests)
  try {
    // The accept queue that Linux allows by default. A client that finds it full retries only after a second or more.
    server.listen({ port, host, backlog: 4096 })
    await once(server, 'listening')
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? listenFailures[String(error.code)] : undefined
    if (why === undefined) throw error
    throw new ListenError(`port ${port} on ${host} ${why(setting)}`, { cause: error })
  }
  const bound = server.address() as AddressInfo
  const shown = bound.family === 'IPv6' ? `[${bound.address}]` : bound.address
  const url = `http://${host === '0.0.0.0' || host === '::' ? 'localhost' : shown}:${bound.port}`
  return { url, port: bound.port, server, close: (graceMs) => close(server, graceMs) }
}

async function close(server: http.Server, graceMs: number): Promise<void> {
  const closed = once(server, 'close')
  await takeWaitingConnections(server)
  server.close()
  // server.close() waits for keep-alive connections that become idle later, as answers end.
  const idle = setInterval(() => server.closeIdleConnections(), 50)
  server.closeIdleConnections()
  const cut = setTimeout(() => server.closeAllConnections(), graceMs)
  await closed
  clearInterval(idle)
  clearTimeout(cut)
}
