import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { type Markup, linkTo, type Query, moment } from '../../platform/pages/parts.ts'
import { auditChannels } from '../../platform/pages/tables.ts'
import { auditListSchema, listAudit, type AuditEntry } from '../queries/audit.ts'
import { listTable, sendList } from './parts/list-view.ts'
import { badge, foreign, linkWith, queryOf, textOf, without } from './parts/parts.ts'
import type { ConsoleDeps } from './parts/shell.ts'

const path = '/audit'

export function auditRoutes(console: ConsoleDeps): Router {
  return Router().get(path, async (req, res) => {
    const query = queryOf(req)
    await sendList(console, res, {
      title: 'Audit',
      about: 'Who changed what, from the console, the API and the command line.',
      path,
      query,
      fields: [
        { name: 'actor', label: 'Who', search: true, placeholder: 'a name or an address, as it is shown' },
        { name: 'via', label: 'From where', options: auditChannels },
        { name: 'action', label: 'Action', placeholder: 'replay' },
        { name: 'target', label: 'Target', placeholder: 'the whole id' },
      ],
      schema: auditListSchema,
      read: (wanted) => listAudit(console.db, wanted),
      shown: ({ data }) => auditTable(data, query),
    })
  })
}

function auditTable(items: readonly AuditEntry[], query: Query): Markup {
  const filtered = Object.keys(without(query, 'open')).length > 0
  return html`<div class="card table-card">${listTable({
    label: 'Audit',
    columns: [
      { head: 'When', cell: ({ at }) => moment(at) },
      { head: 'Action', cell: ({ action }) => action },
      { head: 'Target', kind: 'wide', cell: ({ target }) => targetOf(target) },
      { head: 'Result', cell: ({ detail }) => html`<div class="detail">${resultOf(detail)}</div>` },
      {
        head: 'Who',
        cell: ({ actor, via }) =>
          html`<a href="${linkWith(path, query, { actor })}" title="Only actions of this actor">${foreign(actor, 24)}</a>
        <div class="soft">${via}</div>`,
      },
    ],
    items,
    empty: filtered
      ? 'No action matches these filters.'
      : 'No action in the last RETENTION_DAYS. Every action by hand is recorded here, such as replays, polls and cancellations.',
  })}</div>`
}

/** The target as stored. An id leads to its page, which the search opens. */
function targetOf(target: string | null): Markup {
  if (target === null || !z.guid().safeParse(target).success)
    return html`<span class="mono">${foreign(target, 40)}</span>`
  return html`<a class="mono" href="${linkTo('/search', { q: target })}" title="${target}">${target.slice(0, 8)}</a>`
}

/** The stored counts, with an error first. */
function resultOf(detail: AuditEntry['detail']): Markup {
  const { error, ...counts } = detail ?? {}
  const text = Object.entries(counts).map(([name, value]) => `${name} ${textOf(value)}`)
  return html`${error === undefined ? '' : html`${badge('failed', 'bad')} ${foreign(textOf(error), 300)} `}${foreign(text.join(', '), 300)}`
}
