import { createHash, timingSafeEqual } from 'node:crypto'
import { Router, type Request, type RequestHandler, type Response } from 'express'
import { html } from 'hono/html'
import { proveConnection } from '../http/connections.ts'
import { HttpError, sendError } from '../http/http.ts'
import type { Logger } from '../logger.ts'
import type { Database } from '../postgres/postgres.ts'
import { isLoopback } from '../settings.ts'
import { page, sendPage } from './console-page.ts'
import { readForm } from './form.ts'
import { createGuessLimit, type GuessLimit } from './guess-limit.ts'
import { createSessions, sessionSeconds, type Session, type Sessions } from './sessions.ts'
import type { SessionsTable } from './tables.ts'

export type AccessOptions = {
  /** The one token; without it the listener is on loopback, and only names of loopback may be used for it. */
  token: string | undefined
  /** Names the cookie: two consoles on one host must not share it. */
  name: string
  title: string
  db: Database
  sessionsTable: SessionsTable
  clock: () => Date
  logger: Logger
  /** Shared with readers that show which addresses are limited; by default the guard makes its own. */
  guesses?: GuessLimit
  /** Counts wrong tokens by how they were answered: 401, or 429 once the address is limited. */
  onRefused?: (why: 'wrong_token' | 'too_many_attempts') => void
}

/**
 * Guards a console and its API: a bearer token or the cookie of a session where
 * a token is set, a Host check where none is (a page that rebinds its own name
 * to loopback must not read the console), and a check of where the call comes
 * from on everything: no foreign page acts here, nor makes us work for it.
 */
export function guardAccess(options: AccessOptions): Router {
  const router = Router()
  if (options.token === undefined) return router.use(loopbackHostOnly, sameOriginOnly)
  router.use(sameOriginOnly)
  const secured: Secured = {
    ...options,
    token: options.token,
    cookie: `${options.name}_session`,
    sessions: createSessions({ ...options, table: options.sessionsTable, token: options.token }),
    guesses: options.guesses ?? createGuessLimit(options.clock),
    noteWrong: createBoundedLog(options.logger, 'wrong tokens were given'),
    noteLimited: createBoundedLog(
      options.logger,
      'wrong tokens of this address are answered 429 until then, right ones are accepted',
    ),
  }
  router.post('/sign-in', readForm, signIn(secured))
  router.post('/sign-out', signOut(secured))
  router.use(requireToken(secured))
  return router
}

type Secured = AccessOptions & {
  token: string
  cookie: string
  sessions: Sessions
  guesses: GuessLimit
  noteWrong: BoundedLog
  noteLimited: BoundedLog
}

type BoundedLog = (fields: { remote: string | undefined; until?: Date }) => void

/** Keeps a flood of wrong tokens from filling the log. */
const logEveryMs = 10_000

/** Logs the first event at once, then at most one line in ten seconds, with the count since the last line. */
function createBoundedLog(logger: Logger, message: string): BoundedLog {
  let [count, loggedAt] = [0, -Infinity]
  return (fields) => {
    count += 1
    if (performance.now() - loggedAt < logEveryMs) return
    logger.warn({ ...fields, count }, message)
    ;[count, loggedAt] = [0, performance.now()]
  }
}

const loopbackHostOnly: RequestHandler = (req, _res, next) => {
  const name = hostName(req.headers.host)
  if (name === undefined || !isLoopback(name)) {
    throw new HttpError(
      403,
      'host_not_allowed',
      'without a token this listener answers only to 127.0.0.1 and localhost',
    )
  }
  proveConnection(req.socket)
  next()
}

function hostName(host: string | undefined): string | undefined {
  const url = `http://${host}`
  return host !== undefined && URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '') : undefined
}

/**
 * Browsers say where a call comes from; programs that do not are not driven by a
 * foreign page. Of another site only a link is followed: its pictures, scripts
 * and frames could read nothing of ours, and would still cost us a query each.
 */
const sameOriginOnly: RequestHandler = (req, _res, next) => {
  const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode, 'sec-fetch-dest': dest } = req.headers
  const reads = req.method === 'GET' || req.method === 'HEAD' || req.method === 'OPTIONS'
  const foreignSite = site !== undefined && site !== 'same-origin' && site !== 'none'
  const isPart = mode !== undefined && !(mode === 'navigate' && dest === 'document')
  const foreignOrigin = origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== req.headers.host)
  if ((foreignSite && (!reads || isPart)) || (foreignOrigin && !reads))
    throw new HttpError(403, 'cross_origin', 'this console answers and acts only for itself')
  return next()
}

/** Admits a right token or session before anything is limited: only wrong tokens are. */
function requireToken(options: Secured): RequestHandler {
  return async (req, res, next) => {
    const [, bearer] = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '') ?? []
    if (bearer !== undefined && equal(bearer, options.token)) {
      proveConnection(req.socket)
      return next()
    }
    const session = await sessionOf(req, options)
    if (session) {
      proveConnection(req.socket)
      res.locals['actor'] = session.name
      return next()
    }
    if (bearer !== undefined) noteWrongToken(req, options)
    if (req.accepts(['json', 'html']) === 'html') return showSignIn(res, options, undefined)
    return sendError(
      res,
      new HttpError(401, 'unauthorized', 'send Authorization: Bearer with the token of this listener'),
    )
  }
}

/** Counts a wrong token; throws HttpError 429 where its address has given too many. */
function noteWrongToken({ ip }: Request, { clock, guesses, noteWrong, noteLimited, onRefused }: Secured): void {
  const limited = guesses.limitedUntil(ip)
  if (limited !== undefined) {
    onRefused?.('too_many_attempts')
    const seconds = Math.max(1, Math.ceil((limited.getTime() - clock().getTime()) / 1000))
    const message = `too many wrong tokens came from this address: wrong ones are answered 429 for ${seconds} s, the right one is accepted`
    throw new HttpError(429, 'too_many_attempts', message, { headers: { 'retry-after': String(seconds) } })
  }
  const until = guesses.failed(ip)
  noteWrong({ remote: ip })
  if (until !== undefined) noteLimited({ remote: ip, until })
  onRefused?.('wrong_token')
}

async function sessionOf(req: Request, { cookie, sessions }: Secured): Promise<Session | undefined> {
  const given = cookieOf(req, cookie)
  return given === undefined ? undefined : sessions.find(given)
}

/** Who acts: the name given at the sign-in where there is one, else the address that it comes from. */
export function actorOf(req: Request): string {
  const name: unknown = req.res?.locals['actor']
  return typeof name === 'string' ? name : (req.ip ?? 'unknown')
}

function signIn(options: Secured): RequestHandler {
  return async (req, res) => {
    const given: unknown = req.body?.token
    if (typeof given !== 'string' || !equal(given, options.token)) return refuseSignIn(req, res, options, given)
    const name = nameOf(req.body.name)
    if (name === undefined)
      return showSignIn(res, options, `Your name must have at most ${maxNameLength} printable characters.`)
    setCookie(req, res, { name: options.cookie, value: await options.sessions.open(name), seconds: sessionSeconds })
    return res.redirect(303, localPath(req.body.next))
  }
}

/** Shows the form again. A missing token is not counted as a guess. */
function refuseSignIn(req: Request, res: Response, options: Secured, given: unknown): void {
  try {
    if (typeof given === 'string' && given !== '') noteWrongToken(req, options)
    showSignIn(res, options, 'That is not the token.')
  } catch (error) {
    if (!(error instanceof HttpError)) throw error
    const words = `${error.message.slice(0, 1).toUpperCase()}${error.message.slice(1)}.`
    showSignIn(res.set(error.headers), options, words, error.status)
  }
}

const maxNameLength = 64

/** Empty where none is given, undefined where it could not be shown as it is. */
function nameOf(given: unknown): string | undefined {
  const name = typeof given === 'string' ? given.trim() : ''
  return name.length <= maxNameLength && !/[\p{C}\p{Zl}\p{Zp}]/u.test(name) ? name : undefined
}

/** Ends the session everywhere; a copy of its cookie opens nothing any more. */
function signOut(options: Secured): RequestHandler {
  return async (req, res) => {
    const given = cookieOf(req, options.cookie)
    setCookie(req, res, { name: options.cookie, value: '', seconds: 0 })
    if (given !== undefined) await options.sessions.end(given)
    res.redirect(303, '/')
  }
}

/** Where to go after the sign-in; only a path of this console, never another host. */
function localPath(next: unknown): string {
  return typeof next === 'string' && /^\/(?![/\\])/.test(next) ? next : '/'
}

function setCookie(
  req: Request,
  res: Response,
  { name, value, seconds }: { name: string; value: string; seconds: number },
): void {
  res.cookie(name, value, { httpOnly: true, sameSite: 'strict', secure: req.secure, maxAge: seconds * 1000, path: '/' })
}

function showSignIn(res: Response, { title }: Secured, problem: string | undefined, status = 401): void {
  const body = html`<form class="sign-in" method="post" action="/sign-in">
    <h1>${title}</h1>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : ''}
    <label>Token <input type="password" name="token" autocomplete="current-password" required autofocus /></label>
    <label>Your name, for the audit <input name="name" autocomplete="name" maxlength="${maxNameLength}" placeholder="optional" /></label>
    <input type="hidden" name="next" value="${res.req.originalUrl === '/sign-in' ? '/' : res.req.originalUrl}" />
    <button>Sign in</button>
  </form>`
  sendPage(res.status(status), page({ title: 'Sign in', product: title, nav: [], body }))
}

export function cookieOf(req: Request, name: string): string | undefined {
  for (const pair of (req.headers.cookie ?? '').split(';')) {
    const at = pair.indexOf('=')
    // As it is: a session is base64url, which no browser encodes.
    if (at > 0 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim()
  }
  return undefined
}

/** Digests first, so that lengths may differ and the time taken tells nothing. */
function equal(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
