import { createHash, timingSafeEqual } from 'node:crypto'
import { Router, type Request, type RequestHandler, type Response } from 'express'
import { html } from 'hono/html'
import { proveConnection } from '../http/connections.ts'
import { HttpError, sendError } from '../http/http.ts'
import { createLineBudget, type LineBudget } from '../line-budget.ts'
import type { Logger } from '../logger.ts'
import type { Database } from '../postgres/postgres.ts'
import { isLoopback } from '../settings.ts'
import { page, sendPage } from './console-page.ts'
import { readForm } from './form.ts'
import { createGuessLimit, type GuessLimit } from './guess-limit.ts'
import { createSessions, sessionSeconds, type Sessions } from './sessions.ts'
import type { SessionsTable } from './tables.ts'

export type AccessOptions = {
  /** The token of the listener. Without one, the listener is on loopback and answers only to names of loopback. */
  token: string | undefined
  /** The prefix of the cookie's name. Two consoles on one host must not share a cookie. */
  name: string
  title: string
  db: Database
  sessionsTable: SessionsTable
  clock: () => Date
  logger: Logger
  /** Shared with pages that show the limited addresses. By default the guard creates one. */
  guesses?: GuessLimit
  /** Counts wrong tokens by their answer: 401, or 429 once the address is limited. */
  onRefused?: (why: 'wrong_token' | 'too_many_attempts') => void
}

/**
 * Guards a console and its API. With a token, a call needs the bearer token or the cookie of a session. Without one,
 * the Host header must name loopback, so that a page that rebinds its name to loopback cannot read the console. In both
 * cases, foreign pages may link to the console, but not call it.
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
    // Keeps a flood of wrong tokens from filling the log.
    mayLog: createLineBudget({ logger: options.logger, what: 'wrong tokens' }),
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
  mayLog: LineBudget
}

const loopbackHostOnly: RequestHandler = (req, _res, next) => {
  const name = hostName(req.headers.host)
  const message = 'without a token this listener answers only to 127.0.0.1 and localhost'
  if (name === undefined || !isLoopback(name)) throw new HttpError(403, 'host_not_allowed', message)
  proveConnection(req.socket)
  next()
}

function hostName(host: string | undefined): string | undefined {
  const url = `http://${host}`
  return host !== undefined && URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '') : undefined
}

/**
 * Refuses calls from foreign pages. Browsers send the origin of a call; a program without these headers is not driven
 * by a page. Links of another site are followed. Its pictures, scripts and frames are refused: they could read nothing,
 * but each would cost a query.
 */
const sameOriginOnly: RequestHandler = (req, _res, next) => {
  const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode, 'sec-fetch-dest': dest } = req.headers
  const reads = req.method === 'GET' || req.method === 'HEAD' || req.method === 'OPTIONS'
  const foreignSite = site !== undefined && site !== 'same-origin' && site !== 'none'
  const isPart = mode !== undefined && !(mode === 'navigate' && dest === 'document')
  const foreignOrigin = origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== req.headers.host)
  if ((foreignSite && (!reads || isPart)) || (foreignOrigin && !reads))
    throw new HttpError(403, 'cross_origin', 'this console accepts calls only from its own pages')
  return next()
}

/** Admits a right token or session first, so that only wrong tokens are limited. */
function requireToken(options: Secured): RequestHandler {
  return async (req, res, next) => {
    const [, bearer] = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '') ?? []
    if (bearer !== undefined && equal(bearer, options.token)) {
      proveConnection(req.socket)
      return next()
    }
    const cookie = cookieOf(req, options.cookie)
    const session = cookie === undefined ? undefined : await options.sessions.find(cookie)
    if (session) {
      proveConnection(req.socket)
      res.locals['actor'] = session.name
      return next()
    }
    if (bearer !== undefined) noteWrongToken(req, options)
    if (req.accepts(['json', 'html']) === 'html') return showSignIn(res, options, undefined)
    const message = 'send Authorization: Bearer with the token of this listener'
    return sendError(res, new HttpError(401, 'unauthorized', message))
  }
}

/** Counts a wrong token. Throws HttpError 429 if its address, or all addresses together, sent too many. */
function noteWrongToken(req: Request, { clock, guesses, logger, mayLog, onRefused }: Secured): void {
  const { ip } = req
  const limited = guesses.limitedUntil(ip)
  if (limited !== undefined) {
    onRefused?.('too_many_attempts')
    const seconds = Math.max(1, Math.ceil((limited.getTime() - clock().getTime()) / 1000))
    const effect = `wrong tokens from this address are answered 429 for ${seconds} s; the right token is accepted`
    const message = `too many wrong tokens arrived in one minute: ${effect}`
    throw new HttpError(429, 'too_many_attempts', message, { headers: { 'retry-after': String(seconds) } })
  }
  const until = guesses.failed(ip, askedBy(req))
  const effect = 'wrong tokens from this address are answered 429 until then; right tokens are accepted'
  if (mayLog()) logger.warn({ remote: ip, until }, until === undefined ? 'a wrong token was received' : effect)
  onRefused?.('wrong_token')
}

/** The call and the program that made it, in printable characters: `GET /api/stats by curl/8.5.0`. */
function askedBy(req: Request): string {
  const agent = req.get('user-agent') ?? 'an unnamed program'
  return `${req.method} ${req.path} by ${agent}`.replaceAll(/[^ -~]/g, '?').slice(0, 120)
}

/** The actor of a call: the name given at the sign-in, else the remote address. */
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
      return showSignIn(res, options, `Your name must have at most ${maxNameCharacters} printable characters.`)
    setCookie(req, res, options.cookie, await options.sessions.open(name), sessionSeconds)
    return res.redirect(303, localPath(req.body.next))
  }
}

/** Shows the form again. A missing token does not count as a guess. */
function refuseSignIn(req: Request, res: Response, options: Secured, given: unknown): void {
  try {
    if (typeof given === 'string' && given !== '') noteWrongToken(req, options)
    showSignIn(res, options, 'The token is wrong.')
  } catch (error) {
    if (!(error instanceof HttpError)) throw error
    const words = `${error.message.slice(0, 1).toUpperCase()}${error.message.slice(1)}.`
    showSignIn(res.set(error.headers), options, words, error.status)
  }
}

/** A person's name in the audit. Half would cut names; twice as much widens every table of the audit. */
const maxNameCharacters = 64

/** The name from the form. Empty if none was given, undefined if it is too long or has unprintable characters. */
function nameOf(given: unknown): string | undefined {
  const name = typeof given === 'string' ? given.trim() : ''
  return name.length <= maxNameCharacters && !/[\p{C}\p{Zl}\p{Zp}]/u.test(name) ? name : undefined
}

/** Ends the session on all replicas, so that a copy of its cookie is useless. */
function signOut(options: Secured): RequestHandler {
  return async (req, res) => {
    const given = cookieOf(req, options.cookie)
    setCookie(req, res, options.cookie, '', 0)
    if (given !== undefined) await options.sessions.end(given)
    res.redirect(303, '/')
  }
}

/** The address after the sign-in: a path of this console, never another host. */
function localPath(next: unknown): string {
  return typeof next === 'string' && /^\/(?![/\\])/.test(next) ? next : '/'
}

function setCookie(req: Request, res: Response, name: string, value: string, seconds: number): void {
  res.cookie(name, value, { httpOnly: true, sameSite: 'strict', secure: req.secure, maxAge: seconds * 1000, path: '/' })
}

function showSignIn(res: Response, { title }: Secured, problem: string | undefined, status = 401): void {
  const body = html`<form class="sign-in" method="post" action="/sign-in">
    <h1>${title}</h1>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : ''}
    <label>Token <input type="password" name="token" autocomplete="current-password" required autofocus /></label>
    <label>
      Your name, for the audit
      <input name="name" autocomplete="name" maxlength="${maxNameCharacters}" placeholder="optional" />
    </label>
    <input type="hidden" name="next" value="${res.req.originalUrl === '/sign-in' ? '/' : res.req.originalUrl}" />
    <button>Sign in</button>
  </form>`
  sendPage(res.status(status), page({ title: 'Sign in', product: title, nav: [], body }))
}

function cookieOf(req: Request, name: string): string | undefined {
  for (const pair of (req.headers.cookie ?? '').split(';')) {
    const at = pair.indexOf('=')
    // Not decoded: a session is base64url, which no browser encodes.
    if (at > 0 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim()
  }
  return undefined
}

/** Compares digests, so that lengths may differ and the time reveals nothing. */
function equal(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
