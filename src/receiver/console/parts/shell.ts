import type { Response } from 'express'
import { html } from 'hono/html'
import { footer, page, sendPage, type NavCount, type NavItem } from '../../../platform/pages/console-page.ts'
import type { Markup } from '../../../platform/pages/parts.ts'
import type { ReceiverDeps } from '../../program.ts'
import { maxOnBadge, type Counters } from '../../queries/trouble.ts'
import type { SharedCounters } from './counters.ts'
import type { LinkPolicy } from './media.ts'

export type When = { now: Date; stuckAfterSeconds: number }

/** The dependencies of the pages. */
export type ConsoleDeps = ReceiverDeps & {
  links: LinkPolicy
  /** The counters of the navigation. */
  counters: SharedCounters
  when: () => When
}

export type ConsolePage = {
  title: string
  /** A sentence about the page, beside its title. Without it, the body has its own heading. */
  about?: string | undefined
  body: Markup
  status?: number
  /** Loads the chart library for pages that draw. */
  charts?: boolean
}

const pages = [
  { href: '/', label: 'Now' },
  { href: '/issues', label: 'Issues', counts: 'issues' },
  { href: '/deliveries', label: 'Deliveries' },
  { href: '/requests', label: 'Requests', counts: 'overdue' },
  { href: '/parked', label: 'Parked & quarantine', counts: 'parked' },
  { href: '/reconciler', label: 'Reconciler' },
  { href: '/keys', label: 'Keys' },
  { href: '/subscriptions', label: 'Subscriptions' },
  { href: '/audit', label: 'Audit' },
] as const

/** The counters of the pages, with a plus sign beyond the limit of counting. */
export function countsShown({ issues, critical, overdue, parked, quarantined }: Counters) {
  const shown = (count: number) => (count >= maxOnBadge ? `${maxOnBadge - 1}+` : String(count))
  const ofIssues = critical === 0 ? 'open issues' : `open issues, ${shown(critical)} critical`
  return {
    issues: { shown: shown(issues), of: ofIssues, tone: critical === 0 ? 'warn' : 'bad' },
    overdue: { shown: shown(overdue), of: 'overdue', tone: '' },
    parked: { shown: shown(parked + quarantined), of: 'parked or in the quarantine', tone: '' },
  } satisfies Record<string, NavCount>
}

function navOf(path: string, counters: Counters | undefined): NavItem[] {
  const shown = counters === undefined ? undefined : countsShown(counters)
  return pages.map(({ href, label, ...more }) => ({
    href,
    label,
    current: href === '/' ? path === '/' : path === href || path.startsWith(`${href}/`),
    ...('counts' in more && { count: { name: more.counts, ...shown?.[more.counts] } }),
  }))
}

/** Sends a page in the common frame: navigation, help, and a region for announced messages. */
export function sendConsolePage(
  { settings, counters, clock }: ConsoleDeps,
  res: Response,
  { title, about, body, status = 200, charts = false }: ConsolePage,
): void {
  const { path } = res.req
  const head = html`<div class="head"><h1>${title}</h1><span class="soft">${about}</span></div>`
  const framed = async () =>
    page({
      title,
      product: 'mediadock',
      nav: navOf(path, await counters.read()),
      body: about === undefined ? body : html`${head} ${body}`,
      below: below(clock()),
      search: '/search',
      signOut: settings.internalToken !== undefined,
      scripts: [
        '/assets/console.js',
        '/assets/times.js',
        '/assets/copy.js',
        '/assets/live.js',
        '/assets/drawer.js',
        ...(charts ? ['/assets/chart.js'] : []),
      ],
      styles: charts ? ['/assets/uplot.css', '/assets/receiver.css'] : ['/assets/receiver.css'],
    })
  sendPage(res.status(status), framed())
}

const keys = [
  ['/', "Go to the page's search, else to the search for any id"],
  ['⌘ k', 'Find any id; Ctrl K elsewhere'],
  ['j k', 'Mark the next or the previous row'],
  ['Enter', 'Open the marked row, beside the list on a wide screen'],
  ['Esc', 'Close the details or this help'],
  ['x', 'Select the marked row'],
  ['r', 'Replay, after a preview of its changes'],
  ['t', 'Tail on or off'],
  ['c', "Copy this page's link"],
  ['?', 'This help'],
] as const

function below(now: Date): Markup {
  const links = html`<a href="/docs">API documentation</a>
    <button type="button" class="link" data-copy-link>Copy link</button>
    <button type="button" class="link" data-help aria-haspopup="dialog">Keyboard <kbd>?</kbd></button>`
  return html`${footer(now, links)}
    <dialog id="help" aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <dl class="keys">${keys.map(([key, what]) => html`<dt>${key.split(' ').map((name) => html`<kbd>${name}</kbd> `)}</dt><dd>${what}</dd>`)}</dl>
      <form method="dialog"><button class="quiet" autofocus>Close</button></form>
    </dialog>`
}
