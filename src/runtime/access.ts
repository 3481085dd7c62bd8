import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { Router, urlencoded, type Request, type RequestHandler, type Response } from 'express'
import { html } from 'hono/html'
import { HttpError, sendError } from './http.ts'
import { isLoopback } from './settings.ts'
import { page, sendPage } from './console-page.ts'

export type AccessOptions = {
  /** The one token; without it the listener is on loopback, and only names of loopback may be used for it. */
  token: string | undefined
  /** Names the cookie: two consoles on one host must not share it. */
  name: string
  title: string
  clock: () => Date
}

const sessionSeconds = 12 * 3600

/**
 * Guards a console and its API: a bearer token or a signed session cookie where
 * a token is set, a Host check where none is (a page that rebinds its own name
 * to loopback must not read the console), and a check of where the call comes
 * from on everything: no foreign page acts here, nor makes us work for it.
 */
export function guardAccess(options: AccessOptions): Router {
  const router = Router()
  if (options.token === undefined) return router.use(loopbackHostOnly, sameOriginOnly)
  router.use(sameOriginOnly)
  const secured = { ...options, token: options.token, cookie: `${options.name}_session` }
  router.post('/sign-in', readForm, signIn(secured))
  router.post('/sign-out', signOut(secured))
  router.use(requireToken(secured))
  return router
}

const parseForm = urlencoded({ extended: false, limit: '4kb' })

/** A form that cannot be read is the sender's mistake; the parser's error would also carry the form into the log. */
const readForm: RequestHandler = (req, res, next) => {
  parseForm(req, res, (error?: unknown) => next(error === undefined ? undefined : new HttpError(400, 'invalid_form', 'the form cannot be read')))
}

type Secured = AccessOptions & { token: string; cookie: string }

const loopbackHostOnly: RequestHandler = (req, _res, next) => {
  const name = hostName(req.headers.host)
  if (name === undefined || !isLoopback(name)) {
    throw new HttpError(403, 'host_not_allowed', 'without a token this listener answers only to 127.0.0.1 and localhost')
  }
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
  if ((foreignSite && (!reads || isPart)) || (foreignOrigin && !reads)) throw new HttpError(403, 'cross_origin', 'this console answers and acts only for itself')
  return next()
}

function requireToken(options: Secured): RequestHandler {
  return (req, res, next) => {
    if (hasBearer(req, options)) return next()
    const session = sessionOf(req, options)
    if (session) {
      res.locals['actor'] = session.name
      return next()
    }
    if (req.accepts(['json', 'html']) === 'html') return showSignIn(res, options, undefined)
    return sendError(res, new HttpError(401, 'unauthorized', 'send Authorization: Bearer with the token of this listener'))
  }
}

function hasBearer(req: Request, { token }: Secured): boolean {
  const [, given] = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '') ?? []
  return given !== undefined && equal(given, token)
}

/** What a session says of whoever opened it; the name is their own word for it. */
type Session = { name: string | undefined }

/** `<expires>.<name, base64url>.<mac>` */
function sessionOf(req: Request, { token, cookie, clock }: Secured): Session | undefined {
  const [expires, name, mac] = cookieOf(req, cookie)?.split('.') ?? []
  if (expires === undefined || name === undefined || mac === undefined || !equal(mac, sessionMac(token, expires, name))) return undefined
  if (Number(expires) <= clock().getTime() / 1000) return undefined
  return { name: name === '' ? undefined : Buffer.from(name, 'base64url').toString() }
}

/** Who acts: the name given at the sign-in where there is one, else the address that it comes from. */
export function actorOf(req: Request): string {
  const name: unknown = req.res?.locals['actor']
  return typeof name === 'string' ? name : (req.ip ?? 'unknown')
}

function signIn(options: Secured): RequestHandler {
  return (req, res) => {
    const given: unknown = req.body?.token
    if (typeof given !== 'string' || !equal(given, options.token)) return showSignIn(res, options, 'That is not the token.')
    const name = nameOf(req.body.name)
    if (name === undefined) return showSignIn(res, options, `Your name must have at most ${maxNameLength} printable characters.`)
    const expires = String(Math.floor(options.clock().getTime() / 1000) + sessionSeconds)
    const encoded = Buffer.from(name).toString('base64url')
    const value = `${expires}.${encoded}.${sessionMac(options.token, expires, encoded)}`
    setCookie(req, res, { name: options.cookie, value, seconds: sessionSeconds })
    return res.redirect(303, localPath(req.body.next))
  }
}

const maxNameLength = 64

/** Empty where none is given, undefined where it could not be shown as it is. */
function nameOf(given: unknown): string | undefined {
  const name = typeof given === 'string' ? given.trim() : ''
  return name.length <= maxNameLength && !/[\p{C}\p{Zl}\p{Zp}]/u.test(name) ? name : undefined
}

function signOut(options: Secured): RequestHandler {
  return (req, res) => {
    setCookie(req, res, { name: options.cookie, value: '', seconds: 0 })
    res.redirect(303, '/')
  }
}

/** Where to go after the sign-in; only a path of this console, never another host. */
function localPath(next: unknown): string {
  return typeof next === 'string' && /^\/(?![/\\])/.test(next) ? next : '/'
}

function setCookie(req: Request, res: Response, { name, value, seconds }: { name: string; value: string; seconds: number }): void {
  res.cookie(name, value, { httpOnly: true, sameSite: 'strict', secure: req.secure, maxAge: seconds * 1000, path: '/' })
}

function showSignIn(res: Response, { title }: Secured, problem: string | undefined): void {
  const body = html`<form class="sign-in" method="post" action="/sign-in">
    <h1>${title}</h1>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : ''}
    <label>Token <input type="password" name="token" autocomplete="current-password" required autofocus /></label>
    <label>Your name, for the audit <input name="name" autocomplete="name" maxlength="${maxNameLength}" placeholder="optional" /></label>
    <input type="hidden" name="next" value="${res.req.originalUrl === '/sign-in' ? '/' : res.req.originalUrl}" />
    <button>Sign in</button>
  </form>`
  sendPage(res.status(401), page({ title: 'Sign in', product: title, nav: [], body }))
}

function cookieOf(req: Request, name: string): string | undefined {
  for (const pair of (req.headers.cookie ?? '').split(';')) {
    const at = pair.indexOf('=')
    // As it is: a session is base64url, hex and dots, which no browser encodes.
    if (at > 0 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim()
  }
  return undefined
}

function sessionMac(token: string, expires: string, name: string): string {
  return createHmac('sha256', token).update(`session ${expires} ${name}`).digest('hex')
}

/** Digests first, so that lengths may differ and the time taken tells nothing. */
function equal(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
