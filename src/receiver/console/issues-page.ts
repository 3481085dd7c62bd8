import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { fieldsOf, readForm } from '../../platform/pages/form.ts'
import {
  type Markup,
  type Query,
  linkTo,
  moment,
  table,
  time,
  type Row,
  type Tone,
} from '../../platform/pages/parts.ts'
import { auditedMute } from '../api/on-call.ts'
import { namedItems, defaultPageItems } from '../domain/page-limits.ts'
import { readWithin } from '../queries/deadline.ts'
import { parseFilters } from '../queries/filters.ts'
import { issueListSchema, listIssues, type Issue } from '../queries/issues.ts'
import { listRefusedSubmits, type RefusedSubmit } from '../submitting/refusals.ts'
import { usualFilters, sendList } from './parts/list-view.ts'
import { badge, foreign, lasting, number, shortId, card, queryOf, without } from './parts/parts.ts'
import type { ConsoleDeps } from './parts/shell.ts'

const path = '/issues'
const muteHours = [1, 4, 12] as const
const hoursSchema = z.object({ hours: z.enum(['0', '1', '4', '12'], 'must be 0, 1, 4 or 12') })

/** The open and the past issues, with their start, size and duration. */
export function issuesRoutes(console: ConsoleDeps): Router {
  const { db, clock } = console
  return Router()
    .get(path, async (req, res) => {
      const query = queryOf(req)
      const now = clock()
      await sendList(console, res, {
        title: 'Issues',
        about:
          'Everything that is or was wrong, with its start and end. An issue closes a minute after its cause is gone.',
        above: usualFilters(path, query, usual),
        path,
        query,
        fields: [
          { name: 'state', label: 'State', options: ['open', 'muted', 'closed'] },
          { name: 'severity', label: 'Severity', options: ['critical', 'warning', 'notice'] },
          { name: 'cause', label: 'Cause', search: true, placeholder: 'refused:no_matching_secret' },
        ],
        schema: issueListSchema,
        read: async (wanted) => {
          const isOfIssue = refusedOf(query['cause'])
          const submits = isOfIssue === undefined ? [] : await readWithin(db, (tx) => listRefusedSubmits(tx, now))
          return { ...(await listIssues(db, wanted, now)), submits: submits.filter((submit) => isOfIssue?.(submit)) }
        },
        shown: ({ data, submits }) =>
          html`${refusedSubmitsCard(submits)} ${data.length === 0 && submits.length > 0 ? '' : html`<div class="card table-card">${issuesTable(data, query, now)}</div>`}`,
      })
    })
    .post('/issues/:id/mute', readForm, async (req, res) => {
      const hours = Number(parseFilters(hoursSchema, fieldsOf(req)).hours)
      await auditedMute(console, req, { seconds: hours * 3600, detail: { hours } })
      res.redirect(303, path)
    })
}

/** Selects the refused submits that the issue with this cause is about; undefined if it is about none. */
function refusedOf(cause = ''): ((submit: RefusedSubmit) => boolean) | undefined {
  if (cause === 'submits_refused') return ({ status }) => status !== 402 && status !== 401
  if (!cause.startsWith('credits_spent:')) return undefined
  return ({ status, key_name }) => status === 402 && cause === `credits_spent:${key_name}`
}

const usual = { All: {}, Open: { state: 'open' }, Muted: { state: 'muted' }, Closed: { state: 'closed' } }

function issuesTable(issues: readonly Issue[], query: Query, now: Date): Markup {
  return table({
    label: 'Issues',
    columns: ['Severity', 'What', 'Since', { head: 'Count', kind: 'number' }, ''],
    rows: issues.map((issue) => issueRow(issue, now)),
    empty:
      Object.keys(without(query, 'open', 'cursor')).length > 0
        ? 'No issue matches these filters. A problem on the first page opens its issue within half a minute.'
        : 'No issue in the last RETENTION_DAYS. A problem opens an issue, which closes when the problem is over.',
  })
}

const tones: Record<Issue['severity'], Tone> = { critical: 'bad', warning: 'warn', notice: '' }

function issueRow(issue: Issue, now: Date): Row {
  const { id, state, severity, text, href, cause, affected, count, peak } = issue
  const { opened_at, closed_at, worsened_at, muted_until, muted_by } = issue
  const until = closed_at === null ? now : new Date(closed_at)
  return {
    id: String(id),
    cells: [
      html`${badge(severity, state === 'open' ? tones[severity] : '')} ${state === 'open' ? '' : badge(state, state === 'closed' ? 'good' : '')}`,
      html`<div class="detail wrapped">${href.startsWith(path) ? html`<bdi>${text}</bdi>` : html`<a href="${href}"><bdi>${text}</bdi></a>`}
        <div class="soft"><span class="mono">${foreign(cause, 80)}</span>${affected.length === 0 ? '' : html` · ${affectedList(affected)}`}${muted_until === null ? '' : html` · muted until ${time(muted_until)} by ${foreign(muted_by, 40)}`}</div></div>`,
      html`${moment(opened_at)}<div class="soft">${lasting(until.getTime() - Date.parse(opened_at))}</div>${worsened_at === null ? '' : html`<div class="soft">worse since ${time(worsened_at, 'seconds')}</div>`}${closed_at === null ? '' : html`<div class="soft">until ${time(closed_at)}</div>`}`,
      html`${number(count)}${peak === null || peak === count ? '' : html`<div class="soft">peak ${number(peak)}</div>`}`,
      state === 'closed' ? '' : muteForm(issue),
    ],
  }
}

function affectedList(affected: readonly string[]): Markup {
  const more = affected.length - namedItems
  const shown = affected.slice(0, namedItems).map((one, at) => html`${at === 0 ? '' : ', '}${affectedOne(one)}`)
  return html`${shown}${more > 0 ? ` and ${more} more` : ''}`
}

function affectedOne(one: string): Markup {
  return z.guid().safeParse(one).success ? shortId('request', one) : foreign(one, 40)
}

function muteForm({ id, state }: Issue): Markup {
  const path = `/issues/${id}/mute`
  if (state === 'muted')
    return html`<form method="post" action="${path}"><button class="quiet" name="hours" value="0">Unmute</button></form>`
  return html`<form method="post" action="${path}" class="inline"><span class="soft">Mute</span>${muteHours.map((hours) => html`<button class="quiet" name="hours" value="${hours}" aria-label="Mute ${hours} h" title="No alert is sent in this time, unless the issue becomes more severe">${hours} h</button>`)}</form>`
}

/** The submits that the provider refused in the last hour. Their metadata shows whose they are. Empty without any. */
export function refusedSubmitsCard(submits: readonly RefusedSubmit[]): Markup | '' {
  if (submits.length === 0) return ''
  const all = submits.length < defaultPageItems ? '' : html`<p class="soft">The newest ${defaultPageItems}.</p>`
  return card(
    'Refused submits',
    html`${all}${table({
      label: 'Refused submits',
      columns: [
        'Refused',
        'Answer',
        'Idempotency-Key',
        'Model',
        { head: 'Key', kind: 'minor' },
        'Metadata of the caller',
      ],
      rows: submits.map(submitRow),
    })}`,
  )
}

function submitRow({ idempotency_key: id, refused_at, ...submit }: RefusedSubmit): Row {
  const { status, code, message, model, key_name, metadata } = submit
  const found = linkTo('/search', { q: id })
  return {
    id,
    cells: [
      moment(refused_at),
      html`${status} ${foreign(code, 40)}
        ${message === null ? '' : html`<div class="soft">${foreign(message, 120)}</div>`}`,
      html`<a class="mono" href="${found}" title="${id}" data-copy="${id}">${id.slice(0, 8)}</a>`,
      foreign(model, 28),
      foreign(key_name, 18),
      foreign(metadata, 80),
    ],
  }
}
