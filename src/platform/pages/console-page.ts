import { createRequire } from 'node:module'
import path from 'node:path'
import express, { Router, type RequestHandler, type Response } from 'express'
import helmet from 'helmet'
import { html } from 'hono/html'
import type { Markup } from './parts.ts'

export type NavItem = {
  href: string
  label: string
  current?: boolean
  /** Scripts update the count by `name`. */
  count?: { name: string } & Partial<NavCount>
}

/** A count beside a link, like `3` `open issues`; hidden while 0 or unknown. */
export type NavCount = { shown: string; of: string; tone: 'warn' | 'bad' | '' }

export type PageContent = {
  title: string
  product: string
  nav: readonly NavItem[]
  body: Markup
  /** Content below the main part: a footer, dialogs. */
  below?: Markup
  /** The path of the search for any id, if there is one. */
  search?: string
  signOut?: boolean
  /** Paths of further module scripts and style sheets, in the order in which they are loaded. */
  scripts?: readonly string[]
  styles?: readonly string[]
}

/** The frame around every page of both consoles. */
export function page(content: PageContent): Markup {
  const { title, product, nav, body, below, search, signOut, scripts = [], styles = [] } = content
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <meta name="htmx-config" content='{"includeIndicatorCSS":false}' />
        <title>${title} · ${product}</title>
        <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
        <link rel="stylesheet" href="/assets/console.css" />
        ${styles.map((href) => html`<link rel="stylesheet" href="${href}" />`)}
        <script src="/assets/htmx.min.js" defer></script>
        <script src="/assets/forms.js" type="module"></script>
        <script src="/assets/media.js" type="module"></script>
        <script src="/assets/rows.js" type="module"></script>
        ${scripts.map((src) => html`<script src="${src}" type="module"></script>`)}
      </head>
      <body class="${nav.length > 0 ? 'sided' : ''}">
        <a class="skip" href="#main">Skip to content</a>
        <header class="top">
          <a class="brand" href="/"><img src="/assets/icon.svg" alt="" width="20" height="20" /> ${product}</a>
          ${search === undefined ? '' : html`<form class="find" method="get" action="${search}" role="search" data-filters><input type="search" name="q" aria-label="Find any id" placeholder="Find any id" autocomplete="off" spellcheck="false" data-find /></form>`}
          ${nav.length > 0 ? html`<button type="button" class="quiet menu" popovertarget="pages">Menu</button><nav id="pages" aria-label="Pages" popover>${nav.map(navItem)}</nav>` : ''}
          ${signOut ? html`<form method="post" action="/sign-out" class="out"><button class="quiet">Sign out</button></form>` : ''}
        </header>
        <main id="main">${body}</main>
        ${below ?? ''}
      </body>
    </html>`
}

/** The foot of every page, with further links and the place of messages. */
export function footer(now: Date, links: Markup): Markup {
  return html`<footer class="foot">
    <span data-now="${now.toISOString()}">All times are UTC.</span>
    <button type="button" class="link" data-exact-times aria-pressed="false" hidden>Exact times</button>
    ${links}
    <span id="announced" role="status" aria-live="polite"></span>
  </footer>`
}

function navItem({ href, label, current, count }: NavItem): Markup {
  return html`<span class="place"><a href="${href}" ${current ? html`aria-current="page"` : ''}>${label}</a>${count === undefined ? '' : html`<span class="count ${count.tone ?? ''}" data-count="${count.name}" ${(count.shown ?? '0') === '0' ? html`hidden` : ''}><b>${count.shown ?? ''}</b> <span class="unseen">${count.of ?? ''}</span></span>`}</span>`
}

export function sendPage(res: Response, markup: Markup): void {
  Promise.resolve(markup).then(
    (text) => res.set('cache-control', 'no-store').type('html').send(text.toString()),
    (error: unknown) => res.req.next?.(error),
  )
}

/**
 * Allows scripts and styles only from files of the console, and media from any https URL. `mediaOrigins` adds the http
 * origins of a local provider.
 */
export function pageHeaders({ mediaOrigins }: { mediaOrigins: readonly string[] }): RequestHandler {
  const media = ["'self'", 'https:', ...mediaOrigins]
  return helmet({
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: [...media, 'data:'],
        mediaSrc: media,
        connectSrc: ["'self'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
        baseUri: ["'none'"],
      },
    },
    crossOriginResourcePolicy: { policy: 'same-origin' },
    // Not no-referrer: browsers would then send `Origin: null` with our own forms, which the same-origin check refuses.
    referrerPolicy: { policy: 'same-origin' },
    // TLS ends at the load balancer, which owns this header.
    strictTransportSecurity: false,
    xFrameOptions: { action: 'deny' },
  })
}

const require = createRequire(import.meta.url)

/**
 * Serves style, script and icon: a console must work without the internet. `folders`, and `files` by their name
 * below /assets, belong to one console only.
 */
export function pageAssets({ folders, files }: { folders: readonly string[]; files?: Record<string, string> }): Router {
  const router = Router()
  const all = { 'htmx.min.js': require.resolve('htmx.org/dist/htmx.min.js'), ...files }
  for (const [name, file] of Object.entries(all)) router.get(`/assets/${name}`, sendAsset(file))
  for (const folder of [path.join(import.meta.dirname, 'assets'), ...folders])
    router.use('/assets', express.static(folder, { maxAge: '1h', index: false }))
  return router
}

/** Sends one file. The root lets it be below a folder whose name begins with a dot, such as that of npx. */
export function sendAsset(file: string): RequestHandler {
  return (_req, res) => res.sendFile(path.basename(file), { root: path.dirname(file), maxAge: '1h' })
}
