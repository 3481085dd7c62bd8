import { Router } from 'express'
import { html } from 'hono/html'
import { type Markup, type Field, type Query, moment } from '../../../platform/pages/parts.ts'
import { requestStatuses } from '../../../wire/schemas.ts'
import type { Keys } from '../../domain/keys.ts'
import { postponedBecause } from '../../on-call/poll-words.ts'
import { requestListSchema } from '../../queries/filters.ts'
import { listRequests, type Request } from '../../queries/requests.ts'
import { keyFields, usualFilters, listTable, type ListColumn, sendList } from '../parts/list-view.ts'
import { thumbnail, type LinkPolicy } from '../parts/media.ts'
import { badge, foreign, number, shortId, sourceLine, queryOf, without } from '../parts/parts.ts'
import type { ConsoleDeps, When } from '../parts/shell.ts'
import { contradictionBadge } from './both-sides-card.ts'
import { mediaCount, overdueBy, pollSummaryOf, progressOf } from './request-words.ts'

const path = '/requests'

export function requestsRoutes(console: ConsoleDeps): Router {
  const { db, links, keys } = console
  return Router().get(path, async (req, res) => {
    const when = console.when()
    const columns = requestColumns({ when, links })
    const query = queryOf(req)
    await sendList(console, res, {
      title: 'Requests',
      about: 'Every known request with its outcome, newest first.',
      above: usualFilters(path, query, usual),
      path,
      query,
      fields: fieldsOf(keys(), query),
      schema: requestListSchema,
      read: (wanted) => listRequests(db, wanted, when),
      shown: ({ data, next_cursor }) => {
        const empty = emptyRequests(query, next_cursor)
        return html`<div class="card table-card">${listTable({ label: 'Requests', columns, items: data, empty })}</div>`
      },
    })
  })
}

function fieldsOf(keys: Keys, { ids }: Query): Field[] {
  return [
    { name: 'status', label: 'State', options: requestStatuses },
    { name: 'overdue', label: 'Overdue', ...yesOrNo },
    { name: 'contradiction', label: 'Contradicted', ...yesOrNo, more: true },
    ...keyFields(keys),
    ...(keys.sources.size === 0 ? [] : [{ name: 'external_id', label: 'Id at its source', more: true }]),
    { name: 'model', label: 'Model' },
    { name: 'sandbox', label: 'Sandbox', ...yesOrNo, more: true },
    { name: 'complete', label: 'Complete', ...yesOrNo, more: true },
    { name: 'metadata', label: 'Metadata contains', placeholder: '{"user": "u1"}', more: true },
    ...(ids === undefined ? [] : [{ name: 'ids', label: 'Requests', wordsOf: chosenIds, more: true }]),
  ]
}

const usual = {
  All: { ids: undefined },
  Overdue: { overdue: 'true' },
  Failed: { status: 'FAILED' },
  Canceled: { status: 'CANCELED' },
  Contradicted: { contradiction: 'true' },
}

const chosenIds = (ids: string) => `${number(ids.split(',').length)} chosen`
const yesOrNo = { options: ['true', 'false'], wordsOf: (choice: string) => (choice === 'true' ? 'yes' : 'no') }

type Shown = { when: When; links: LinkPolicy }

export const requestColumns = ({ when, links }: Shown): ListColumn<Request>[] => [
  { head: 'Request', cell: idCell },
  { head: 'Here', cell: (request) => stateCell(request, when) },
  { head: 'At the provider', cell: providerCell },
  { head: 'Model, key', kind: 'minor', cell: modelCell },
  { head: 'Submitted', kind: 'minor', cell: (request) => moment(submittedAt(request)) },
  { head: 'Media', cell: (request) => mediaCell(request, links) },
]

const submittedAt = ({ created_at, tracked_at }: Request) => created_at ?? tracked_at

function idCell({ id, source_name }: Request): Markup {
  return html`${shortId('request', id)}${sourceLine(source_name)}`
}

function stateCell(request: Request, when: When): Markup {
  const late = overdueBy(request, when)
  return html`${badge(request.status)}${late === undefined ? '' : html`<div>${badge(`overdue ${late}`, 'warn')}</div>`}${request.contradiction ? html`<div>${contradictionBadge(request)}</div>` : ''}`
}

function providerCell(request: Request): Markup {
  const { poll_outcome, poll_detail, confirmed_at } = request
  const summary = pollSummaryOf(request)
  const progress = progressOf(request)
  return html`<span title="${summary.text}">${badge(summary.word, summary.tone)}</span>${poll_outcome === 'postponed' && confirmed_at === null ? html`<div class="soft">${foreign(postponedBecause(poll_detail ?? ''), 120)}</div>` : ''}${progress === undefined ? '' : html`<div class="soft">${progress}</div>`}`
}

function modelCell({ model, key_name }: Request): Markup {
  return html`${foreign(model, 18)}<div class="soft">${foreign(key_name, 18)}</div>`
}

function mediaCell(request: Request, links: LinkPolicy): Markup {
  const count = mediaCount(request)
  if (count === undefined) return html`<span class="soft">—</span>`
  const { first_media } = request
  return html`<span class="media-cell">${first_media === null ? '' : thumbnail(first_media, links)} ${count}</span>`
}

function emptyRequests(query: Query, nextCursor: string | null): Markup {
  if (nextCursor !== null)
    return html`No request on this page matches. The search ended early, because metadata takes long to read: continue with older ones.`
  if (Object.keys(without(query, 'cursor', 'open')).length === 0)
    return html`No request is tracked yet. Submit one through <code>POST /api/generations</code>, track one with <code>POST /api/requests</code>, or wait for its webhook.`
  if (query['overdue'] === 'true')
    return html`No request is overdue. Each tracked request has ended or is younger than STUCK_AFTER_SECONDS.`
  if (query['contradiction'] === 'true') return html`No webhook that is kept contradicts a stored result.`
  return html`No request matches these filters. A request that no service tracks has a row once its webhook has landed: look for the webhook among the <a href="/deliveries?view=arrivals">arrivals</a>.`
}
