import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express'
import { createLineBudget } from '../line-budget.ts'
import type { Logger } from '../logger.ts'
import { boundConnections, boundRequests } from './connections.ts'
import { answerBadFraming, answerConnect, type OnRefused, properRequests, refuseExpectation } from './framing.ts'
import { endConnectionsFrom, takeWaitingConnections } from './retiring.ts'

/** The spec's error envelope (Errors): one shape for every answer that is not a success. */
export type ErrorBody = { error: { type: string; code: string; message: string } }

/** An expected failure with its answer; thrown by handlers, turned into the envelope in one place. */
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

export function errorBody({ type, code, message }: { type: string; code: string; message: string }): ErrorBody {
  return { error: { type, code, message } }
}

/** `message` where it is not the error's own: a translation of it. */
export function sendError(res: Response, error: HttpError, message = error.message): void {
  const { status, headers, type, code } = error
  res.status(status).set(headers).json(errorBody({ type, code, message }))
}

export const notFound: RequestHandler = (req) => {
  throw new HttpError(404, 'not_found', `there is nothing at ${req.method} ${req.originalUrl.split('?', 1)[0]}`)
}

/** For the paths of a router: any other method than these gets 405 with `Allow`. */
export function methodNotAllowed(...allowed: string[]): RequestHandler {
  return (req) => {
    const message = `${req.method} is not possible here, use ${allowed.join(', ')}`
    throw new HttpError(405, 'method_not_allowed', message, { headers: { allow: allowed.join(', ') } })
  }
}

/** Says the message of an error in the language of the caller. */
export type Localize = (req: Request, res: Response, message: string) => string

/** The one error handler: expected failures as they are, surprises logged and answered 500. */
export function errorHandler(
  logger: Logger,
  localize: Localize = (_req, _res, message) => message,
): ErrorRequestHandler {
  return (error, req, res, next) => {
    if (res.headersSent) return next(error)
    endWithoutBody(req)
    const expected = expectedIn(error)
    if (!expected) logger.error({ err: error, method: req.method, path: req.path }, 'unexpected error while answering')
    const answer =
      expected ?? new HttpError(500, 'internal_error', 'something failed on our side; the log has the details')
    sendError(res, answer, localize(req, res, answer.message))
  }
}

function expectedIn(error: unknown): HttpError | undefined {
  if (error instanceof HttpError) return error
  return error instanceof URIError
    ? new HttpError(404, 'not_found', 'the path is not valid percent-encoding')
    : undefined
}

const unreadBodyMs = 2000

/** A refused request's body is read to its end, so that its sender sees the answer, but not for long. */
function endWithoutBody(req: http.IncomingMessage): void {
  const hasBody = req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
  if (req.complete || !hasBody) return
  const timer = setTimeout(() => req.socket.destroy(), unreadBodyMs)
  req.once('end', () => clearTimeout(timer)).once('close', () => clearTimeout(timer))
}

export type Listener = {
  url: string
  port: number
  server: http.Server
  /** Stops accepting, lets answers in progress end for at most `graceMs`, then cuts what is left. */
  close: (graceMs: number) => Promise<void>
}

/** As many as Linux lets wait for their turn, which takes in one connection each: who is turned away there tries again after seconds. */
const maxBacklog = 4096

/** The listener cannot have its address; the message says why and which setting moves it. */
export class ListenError extends Error {
  override name = 'ListenError'
  code = 'listen' as const
}

const listenFailures: Record<string, string> = {
  EADDRINUSE: 'is in use by another program',
  EACCES: 'needs privileges that this process does not have',
  EADDRNOTAVAIL: 'is not an address of this machine',
}

export type ListenOptions = {
  handler: http.RequestListener
  host: string
  port: number
  /** The setting that moves this listener, named in the message when its port is taken. */
  setting: string
  logger: Logger
  /** How long a connection stays open that nobody uses: longer than whoever is in front of us keeps it. */
  keepAliveSeconds?: number
  /** We are about to close: from then on each answer ends its connection. */
  retired?: AbortSignal
  /** The handler itself sends `100 Continue`, when it wants the body; else it is sent before the handler is called. */
  continues?: boolean
  /** A sender that has ended its side still gets its answer; not for handlers that wait long for the sake of somebody who may have gone. */
  halfOpen?: boolean
  /** Called with why, for each connection that is closed on its sender. */
  onClosed?: (reason: string) => void
}

/**
 * Headers within 10 s, the first request too, and the whole request within 30 s. Keep-alive
 * outlasts the 60 s of the usual load balancer, so that it is never we who close first; when we stop, see endConnectionsFrom().
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const {
    handler,
    host,
    port,
    setting,
    logger,
    keepAliveSeconds = 75,
    retired,
    continues = false,
    halfOpen = false,
    onClosed,
  } = options
  const mayLog = createLineBudget({ logger, what: 'malformed or slow requests' })
  const closing = (reason: string, socket: Socket, message: string, facts: object) => {
    if (mayLog()) logger.info({ ...facts, remote: socket.remoteAddress }, message)
    onClosed?.(reason)
  }
  const onRefused: OnRefused = ({ status, code }, socket, reason = code) =>
    closing(code, socket, 'malformed or slow request refused', { status, reason })
  const bounded = (given: http.RequestListener) =>
    boundRequests(given, (socket) =>
      closing('pipelining', socket, 'connection closed: too many requests without waiting for the answers', {}),
    )
  const server = http.createServer({
    headersTimeout: 10_000,
    requestTimeout: 30_000,
    keepAliveTimeout: keepAliveSeconds * 1000,
    connectionsCheckingInterval: 500,
    requireHostHeader: false,
  })
  const ending = retired ? endConnectionsFrom(server, retired) : (given: http.RequestListener) => given
  const requests = bounded(ending(properRequests(handler, onRefused)))
  server.on('request', requests)
  Object.assign(server, { httpAllowHalfOpen: halfOpen })
  server.on('clientError', (error: NodeJS.ErrnoException, socket) =>
    answerBadFraming(error, socket as Socket, { onRefused, onUnused: () => onClosed?.('unused') }),
  )
  server.on('connect', (_req, socket) => answerConnect(socket, onRefused))
  server.on('checkExpectation', bounded(refuseExpectation(onRefused)))
  if (continues) server.on('checkContinue', requests)
  boundConnections(server, { onClosed: () => onClosed?.('too_many_connections') })
  try {
    server.listen({ port, host, backlog: maxBacklog })
    await once(server, 'listening')
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? listenFailures[String(error.code)] : undefined
    if (why === undefined) throw error
    throw new ListenError(`port ${port} on ${host} ${why}: set ${setting} to a free port`, { cause: error })
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
  // server.close() waits for idle keep-alive connections, and more become idle as answers end.
  const idle = setInterval(() => server.closeIdleConnections(), 50)
  server.closeIdleConnections()
  const cut = setTimeout(() => server.closeAllConnections(), graceMs)
  await closed
  clearInterval(idle)
  clearTimeout(cut)
}
