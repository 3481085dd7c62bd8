import type { Response } from 'express'
import { html } from 'hono/html'
import { page, sendPage, type Markup } from '../../pages/console-page.ts'
import type { ReceiverDeps } from '../../receiver/program.ts'
import type { LinkPolicy } from './media-links.ts'

/** What the pages of the console may use. */
export type ConsoleDeps = ReceiverDeps & { links: LinkPolicy }

export type ConsolePage = {
  title: string
  body: Markup
  status?: number
  /** Loads the chart library for pages that draw. */
  charts?: boolean
  /** For pages with parts that fetch themselves again. */
  live?: boolean
}

const pages = [
  { href: '/', label: 'Now' },
  { href: '/issues', label: 'Issues' },
  { href: '/deliveries', label: 'Deliveries' },
  { href: '/requests', label: 'Requests' },
  { href: '/parked', label: 'Parked & quarantine' },
  { href: '/reconciler', label: 'Reconciler' },
  { href: '/keys', label: 'Keys' },
  { href: '/subscriptions', label: 'Subscriptions' },
  { href: '/audit', label: 'Audit' },
] as const

/** Sends a page in the frame that all have: navigation, help, the place where messages are read out. */
export function sendConsolePage(
  { settings }: ConsoleDeps,
  res: Response,
  { title, body, status = 200, charts = false, live = false }: ConsolePage,
): void {
  const { path } = res.req
  const nav = pages.map(({ href, label }) => ({
    href,
    label,
    current: href === '/' ? path === '/' : path === href || path.startsWith(`${href}/`),
  }))
  const markup = page({
    title,
    product: 'mediadock',
    nav,
    body,
    below: footer(),
    search: '/search',
    signOut: settings.internalToken !== undefined,
    scripts: ['/assets/console.js', ...(charts ? ['/assets/chart.js'] : []), ...(live ? ['/assets/live.js'] : [])],
    styles: charts ? ['/assets/uplot.css', '/assets/receiver.css'] : ['/assets/receiver.css'],
  })
  sendPage(res.status(status), markup)
}

const keys = [
  ['/', "Go to the page's search, else to that for everything"],
  ['⌘ k', 'Find any id; Ctrl K elsewhere'],
  ['j k', 'Mark the next row, the one before'],
  ['Enter', 'Open the marked row'],
  ['x', 'Select the marked row'],
  ['r', 'Replay: shows first what it would change'],
  ['t', 'Tail on or off'],
  ['c', "Copy this page's link"],
  ['?', 'This help'],
] as const

function footer(): Markup {
  return html`<footer class="foot">
      <span>All times are UTC.</span>
      <a href="/docs">API documentation</a>
      <button type="button" class="link" data-copy-link>Copy link</button>
      <button type="button" class="link" data-help aria-haspopup="dialog">Keyboard <kbd>?</kbd></button>
      <span id="announced" role="status" aria-live="polite"></span>
    </footer>
    <dialog id="help" aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <dl class="keys">${keys.map(([key, what]) => html`<dt>${key.split(' ').map((name) => html`<kbd>${name}</kbd> `)}</dt><dd>${what}</dd>`)}</dl>
      <form method="dialog"><button class="quiet" autofocus>Close</button></form>
    </dialog>`
}
