import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import { action, table, moment, time } from '../../platform/pages/parts.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { environments } from '../domain/schema.ts'
import type { ConsoleDeps } from './actions.ts'
import { choiceOf, textSchema } from './filter-fields.ts'
import { showList } from './list-page.ts'
import { accountLink, badge, isUnfinished, requestLink, type Show, chargeOf } from './parts.ts'
import { findRequests, type RequestRow, searchRequests } from './reads.ts'

const schema = z.object({
  model: textSchema,
  status: choiceOf(requestStatuses),
  environment: choiceOf(environments),
})

export function showRequests(app: Express, { db, catalog, clock }: ConsoleDeps, show: Show): void {
  showList(app, show, {
    path: '/requests',
    heading: 'Requests',
    schema,
    fields: () => [
      { name: 'model', label: 'Model', options: [...catalog().keys()] },
      { name: 'status', label: 'Status', options: requestStatuses },
      { name: 'environment', label: 'Environment', options: environments },
    ],
    ids: 'request id or Idempotency-Key',
    find: (id) => findRequests(db, id),
    read: (wanted) => searchRequests(db, wanted),
    nothing: 'No request.',
    table: (rows, none) => requestTable(rows, clock(), none),
  })
}

function requestTable(requests: readonly RequestRow[], now: Date, empty: string): Markup {
  const rows = requests.map((request) => {
    const { id, account, key_name: key, status, progress } = request
    return [
      requestLink(id),
      html`<span class="cut short" title="${account}">${accountLink(account)}</span>`,
      html`<span class="cut short" title="${key}">${key}</span>`,
      request.environment,
      request.model,
      html`${badge(status)}${status === 'IN_PROGRESS' ? html` ${progress} %` : ''}`,
      chargeOf(request),
      moment(request.created_at),
      moment(request.completed_at),
      isUnfinished(status) ? action({ path: `/requests/${id}/cancel`, label: 'Cancel', tone: 'danger' }) : '',
    ]
  })
  const first = ['Request', 'Account', 'Key', 'Environment', 'Model', 'Status']
  const columns = [...first, { head: 'Charge', kind: 'number' }, 'Submitted', 'Ended', ''] as const
  const asOf = rows.length === 0 ? '' : html`<p class="soft">As of ${time(now.toISOString())} UTC.</p>`
  return html`${table({ label: 'Requests', columns, rows, empty })}${asOf}`
}
