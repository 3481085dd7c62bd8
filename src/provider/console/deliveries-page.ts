import type { Express, Request } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { shownCharacters } from '../../platform/json-text.ts'
import { sendPage } from '../../platform/pages/console-page.ts'
import { action, badgeOf, facts, type Markup, moment, table, time, type Tone } from '../../platform/pages/parts.ts'
import { postgresTime } from '../../platform/postgres/time.ts'
import {
  type AttemptListing,
  type DeliveryDetail,
  type DeliveryListing,
  resendDelivery,
  showDelivery,
  type Standing,
  standings,
} from '../webhooks/delivery-history.ts'
import { auditedHere, type ConsoleDeps, idOf } from './actions.ts'
import { choiceOf, showList } from './list-page.ts'
import { accountLink, refreshedFrom, requestLink, type Show } from './parts.ts'
import { findDeliveries, searchDeliveries } from './reads.ts'

const schema = z.object({ state: choiceOf(standings) })

/** The list of deliveries, and the page of each, which refreshes until the delivery has ended. */
export function showDeliveries(app: Express, deps: ConsoleDeps, show: Show): void {
  const { db } = deps
  showList(app, show, {
    path: '/deliveries',
    heading: 'Webhook deliveries',
    schema,
    fields: () => [{ name: 'state', label: 'State', options: standings }],
    ids: 'request id or delivery id',
    find: (id) => findDeliveries(db, id),
    read: (wanted) => searchDeliveries(db, wanted),
    nothing: 'No delivery.',
    table: deliveryTable,
  })
  const view = async (req: Request) => {
    const detail = await showDelivery(db, idOf(req))
    if (detail === undefined) throw new HttpError(404, 'not_found', 'there is no such delivery')
    return detail
  }
  app.get('/deliveries/:id', async (req, res) => show(req, res, 'Delivery', deliveryPage(await view(req))))
  app.get('/deliveries/:id/now', async (req, res) => sendPage(res, currentState(await view(req))))
  app.post('/deliveries/:id/resend', async (req, res) => {
    const id = idOf(req)
    const work = () => resendDelivery(db, id, postgresTime())
    const detailOf = (isDue: boolean) => (isDue ? {} : undefined)
    if (!(await auditedHere(deps, req, { action: 'resend', target: id, detailOf, work })))
      throw new HttpError(409, 'not_resendable', 'this delivery is unknown, already due, or being sent')
    res.redirect(303, `/deliveries/${id}`)
  })
}

function deliveryPage(detail: DeliveryDetail): Markup {
  return html`<h1>Delivery <span class="mono">${detail.delivery.id}</span></h1>
    ${currentState(detail)}
    <section class="card">
      <h2>Body</h2>
      <pre class="bytes" tabindex="0">${detail.delivery.body.slice(0, shownCharacters)}</pre>
    </section>`
}

/** The part that fetches itself until the delivery has ended. */
function currentState({ delivery, attempts }: DeliveryDetail): Markup {
  const { id, request_id, account, url, state, standing, attempts: begun, max_attempts, created_at } = delivery
  return html`<div id="state" ${state === 'pending' ? refreshedFrom(`/deliveries/${id}/now`) : ''}>
    <section class="card">
      ${facts([
        ['State', html`<div role="status" class="live-status">${standingBadge(standing)}</div>`],
        request_id !== null && ['Request', requestLink(request_id)],
        ['Account', html`${accountLink(account)}, key ${delivery.key_name ?? delivery.api_key_id}`],
        ['URL', url],
        ['Attempts', html`${begun} of ${max_attempts}`],
        ['Made', time(created_at)],
        (standing === 'waiting' || standing === 'retrying') && ['Next attempt', time(delivery.due_at)],
      ])}
      ${action({ path: `/deliveries/${id}/resend`, label: 'Send again', tone: 'quiet' })}
    </section>
    <section class="card">
      <h2>Attempts</h2>
      ${attemptTable(attempts)}
    </section>
  </div>`
}

function attemptTable(attempts: readonly AttemptListing[]): Markup {
  const columns = [
    { head: 'No.', kind: 'number' },
    'Started (UTC)',
    { head: 'Took', kind: 'number' },
    'Status',
    { head: 'Answer or error', kind: 'wide' },
  ] as const
  const rows = attempts.map(({ number, started_at, duration_ms, ok, http_status: status, detail }) => [
    number,
    time(started_at),
    `${duration_ms} ms`,
    badgeOf(String(status ?? 'no answer'), ok ? 'good' : 'bad'),
    html`<bdi class="mono">${answerText(detail)}</bdi>`,
  ])
  return table({ label: 'Attempts', columns, rows, empty: 'No attempt has ended yet.' })
}

const standingTones: Record<Standing, Tone> = {
  waiting: '',
  sending: '',
  retrying: 'warn',
  delivered: 'good',
  'given up': 'bad',
  dropped: '',
}

export function standingBadge(standing: Standing): Markup {
  return badgeOf(standing, standingTones[standing])
}

const columns = ['Delivery', 'Request', 'Account', 'Host', 'State', 'Answers', 'Last answer', 'Made']

export function deliveryTable(deliveries: readonly DeliveryListing[], empty = 'No delivery.'): Markup {
  const rows = deliveries.map((delivery) => {
    const { id, request_id, account, url, host, created_at } = delivery
    const answers = delivery.ended.map(({ http_status: status }) => status ?? 'no answer').join(', ')
    return [
      html`<a class="mono" href="/deliveries/${id}" title="${id}">${id.slice(0, 8)}</a>`,
      request_id === null ? '—' : requestLink(request_id),
      html`<span class="cut short" title="${account}">${accountLink(account)}</span>`,
      html`<span class="cut short" title="${url}">${host}</span>`,
      html`<span class="words">${standingBadge(delivery.standing)} ${nextOf(delivery)}</span>`,
      html`<span class="words">${answers || 'none'}</span>`,
      lastAnswer(delivery),
      moment(created_at),
    ]
  })
  return table({ label: 'Webhook deliveries', columns, rows, empty })
}

function nextOf({ standing, due_at }: DeliveryListing): Markup | '' {
  if (standing !== 'retrying' && standing !== 'waiting') return ''
  return html`<span class="soft">next ${time(due_at, 'seconds')}</span>`
}

/** The status and the beginning of the last answer, or the reason why none arrived. */
function lastAnswer({ ended }: DeliveryListing): Markup {
  const last = ended.at(-1)
  if (last === undefined) return html`—`
  const text = answerText(last.detail)
  return html`<span class="cut answer" title="${text}">${last.http_status ?? ''} <bdi class="soft">${text}</bdi></span>`
}

/** A receiver's answer as text. Control and other invisible characters become dots. */
export function answerText(detail: string): string {
  return detail.replaceAll(/[^\P{C}\n\t]|[\u2028\u2029]/gu, '·')
}
