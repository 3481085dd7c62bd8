import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import { moment, table, type Row } from '../../platform/pages/parts.ts'
import { auditChannels, channelWords } from '../../platform/pages/tables.ts'
import { auditListSchema, listAudit, type AuditEntry } from '../queries/audit.ts'
import { parseFilters } from '../queries/filters.ts'
import type { Page } from '../queries/page.ts'
import { listView } from './parts/list-view.ts'
import { badge, foreign } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { linkTo, linkWith, queryOf, without, type Query } from './parts/url.ts'

const path = '/audit'

const actionWords: Readonly<Record<string, string>> = {
  replay: 'replayed',
  replay_many: 'replayed many',
  verify_quarantine: 'verified the quarantine again',
  reconcile: 'polled the provider',
  reconcile_run: 'ran the reconciler',
  mute_issue: 'muted an issue',
  media_remove: 'removed archived media',
}

export function auditRoutes(console: ConsoleDeps): Router {
  return Router().get(path, async (req, res) => {
    const query = queryOf(req)
    const fields = [
      { name: 'actor', label: 'Who', search: true, placeholder: 'a name or an address, as it is shown' },
      { name: 'via', label: 'From where', options: auditChannels },
      { name: 'action', label: 'What', options: Object.keys(actionWords) },
      { name: 'target', label: 'On what', placeholder: 'the whole id' },
    ]
    const read = async () => {
      const wanted = parseFilters(auditListSchema, without(query, 'open'))
      return { listed: await listAudit(console.db, wanted) }
    }
    const { status, body } = await listView(console, { path, query, fields }, read, ({ listed }) =>
      auditTable(listed, query),
    )
    const about = 'Who changed what, from the console, the API and the command line.'
    sendConsolePage(console, res, { title: 'Audit', about, status, body })
  })
}

function auditTable({ data }: Page<AuditEntry>, query: Query): Markup {
  const filtered = Object.keys(without(query, 'open')).length > 0
  return html`<div class="card table-card">${table({
    label: 'Audit',
    columns: ['When', 'What', 'On what', 'Result', 'Who'],
    rows: data.map((entry) => auditRow(entry, query)),
    empty: filtered
      ? 'No action matches these filters.'
      : 'No action in the last RETENTION_DAYS. Every action by hand is recorded here, such as replays, polls and cancellations.',
  })}</div>`
}

function auditRow({ id, at, via, actor, action, target, detail }: AuditEntry, query: Query): Row {
  const href = hrefOf(action, target)
  const what = targetInWords(action, target)
  return {
    id: String(id),
    cells: [
      moment(at),
      html`<div class="wrapped" title="${action}">${actionWords[action] ?? action}</div>`,
      href === undefined ? what : html`<a href="${href}" ${target === null ? '' : html`title="${target}"`}>${what}</a>`,
      html`<div class="detail">${resultOf(detail)}</div>`,
      html`<a href="${linkWith(path, query, { actor })}" title="Only actions of this actor">${foreign(actor, 24)}</a>
        <div class="soft">${channelWords[via]}</div>`,
    ],
  }
}

function targetInWords(action: string, target: string | null): Markup {
  if (target === null)
    return html`${action === 'verify_quarantine' ? 'everything' : action === 'reconcile_run' ? 'everything due' : foreign(null)}`
  const id = target.replace(/^ids=/, '')
  return html`<span class="mono">${isId(id) ? id.slice(0, 8) : foreign(target, 40)}</span>`
}

const isId = (text: string) => z.guid().safeParse(text).success

/** The page of an action's target. */
function hrefOf(action: string, target: string | null): string | undefined {
  const parameters = target === null ? {} : Object.fromEntries(new URLSearchParams(target))
  switch (action) {
    case 'replay':
    case 'replay_many':
      if (target === null) return '/deliveries'
      if (isId(target)) return `/deliveries/${target}`
      return parameters['ids'] !== undefined && isId(parameters['ids'])
        ? `/deliveries/${parameters['ids']}`
        : linkTo('/deliveries', parameters)
    case 'verify_quarantine':
      return parameters['reason'] === undefined
        ? '/parked'
        : linkTo('/parked', { view: 'quarantine', reason: parameters['reason'] })
    case 'cancel':
    case 'reconcile':
    case 'media_remove':
      return target !== null && isId(target) ? `/requests/${target}` : undefined
    case 'mute_issue':
      return '/issues'
    case 'reconcile_run':
      return '/reconciler'
    default:
      return undefined
  }
}

/** The order of counts: totals first, then outcomes. Postgres does not keep the order of members. */
const readingOrder = [
  'count',
  'checked',
  'scanned',
  'accepted',
  'replayed',
  'landed',
  'changed',
  'running',
  'notFound',
  'refused',
  'failed',
  'postponed',
  'rateLimited',
]

/** The counts in words, zeros left out, with an error first. */
function resultOf(detail: AuditEntry['detail']): Markup {
  const { error, ...rest } = detail ?? {}
  const some = Object.entries(rest).filter(([, value]) => value !== 0 && value !== null && value !== '')
  const parts = some
    .toSorted(([a], [b]) => placeOf(a) - placeOf(b))
    .map(([name, value], at) => html`${at === 0 ? '' : ', '}${inWords(name)} ${foreign(textOf(value), 80)}`)
  if (error !== undefined)
    return html`${badge('failed', 'bad')} ${foreign(textOf(error), 300)} ${parts.length > 0 ? html`<span class="soft">(${parts})</span>` : ''}`
  if (parts.length > 0) return html`${parts}`
  return html`<span class="soft">${Object.keys(rest).length > 0 ? 'nothing to do' : 'done'}</span>`
}

function placeOf(name: string): number {
  const place = readingOrder.indexOf(name)
  return place === -1 ? readingOrder.length : place
}

function inWords(name: string): string {
  return name
    .replaceAll('_', ' ')
    .replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase()
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
