import { html } from 'hono/html'
import type { Markup } from '../../pages/console-page.ts'
import type { LedgerCheck } from '../accounts/ledger.ts'
import type { ModelListing } from '../operating/commands.ts'
import type { DeliveryDetail, DeliveryListing } from '../webhooks/delivery-history.ts'
import { accountLink, action, badge, confirmation, requestLink, shownCharacters, table, time } from './parts.ts'
import type { EntryRow } from './reads.ts'

export function deliveriesPage(deliveries: readonly DeliveryListing[]): Markup {
  return html`<h1>Webhook deliveries</h1>
    <p><a href="/deliveries/verifying">How to verify a webhook</a>, in TypeScript, Python and Go</p>
    <section class="card">${deliveryTable(deliveries)}</section>`
}

export function deliveryTable(deliveries: readonly DeliveryListing[]): Markup {
  const rows = deliveries.map(
    ({ id, request_id, account, url, state, attempts, max_attempts, due_at, created_at }) =>
      html`<tr>
        <td><a class="mono" href="/deliveries/${id}" title="${id}">${id.slice(0, 8)}</a></td>
        <td>${requestLink(request_id)}</td>
        <td>${accountLink(account)}</td>
        <td><span class="cut" title="${url}">${url}</span></td>
        <td>${badge(state)}</td>
        <td class="number">${attempts} of ${max_attempts}</td>
        <td>${time(created_at)}</td>
        <td>${state === 'pending' ? time(due_at) : html`—`}</td>
        <td>${action(`/deliveries/${id}/resend`, 'Send again')}</td>
      </tr>`,
  )
  const heads = ['Delivery', 'Request', 'Account', 'URL', 'State', 'Attempts', 'Created (UTC)', 'Next', '']
  return table('Webhook deliveries', heads, rows, 'No delivery.')
}

export function deliveryPage({ delivery, body, attempts }: DeliveryDetail): Markup {
  const rows = attempts.map(
    ({ number, started_at, duration_ms, ok, http_status, detail }) =>
      html`<tr>
        <td class="number">${number}</td>
        <td>${time(started_at)}</td>
        <td class="number">${duration_ms} ms</td>
        <td>${badge(ok ? 'delivered' : 'failed')}</td>
        <td>${http_status ?? '—'}</td>
        <td class="wide">${detail}</td>
      </tr>`,
  )
  return html`<h1>Delivery <span class="mono">${delivery.id}</span></h1>
    <section class="card">${deliveryTable([delivery])}</section>
    <section class="card">
      <h2>Attempts</h2>
      ${table('Attempts', ['No.', 'Started (UTC)', 'Took', 'Outcome', 'Status', 'Answer'], rows, 'No attempt has ended yet.')}
    </section>
    <section class="card"><h2>Body</h2><pre tabindex="0">${body.slice(0, shownCharacters)}</pre></section>`
}

export function entryTable(entries: readonly EntryRow[], empty = 'No credits have moved yet.'): Markup {
  const rows = entries.map(
    ({ kind, book, amount, request_id, created_at }) =>
      html`<tr>
        <td>${time(created_at)}</td>
        <td>${kind}</td>
        <td>${book}</td>
        <td class="number">${amount}</td>
        <td class="mono">${request_id === null ? '' : html`<a href="/requests/${request_id}">${request_id.slice(0, 8)}</a>`}</td>
      </tr>`,
  )
  return table('Ledger', ['Time (UTC)', 'Movement', 'Book', 'Credits', 'Request'], rows, empty)
}

export function modelsPage(models: readonly ModelListing[]): Markup {
  const toggle = (slug: string, environment: string, enabled: boolean) =>
    html`<td><div class="inline">
      ${badge(enabled ? 'on' : 'off')}
      ${enabled ? html`<a class="button quiet" href="/models/switch-off?${new URLSearchParams({ slug, environment }).toString()}">Switch off…</a>` : action('/models', 'Switch on', 'quiet', { slug, environment, enabled: 'true' })}
    </div></td>`
  const rows = models.map(
    ({ slug, type, name, live, sandbox }) =>
      html`<tr>
        <td class="mono"><a href="/models/${slug}">${slug}</a></td>
        <td>${name}</td>
        <td>${type}</td>
        ${toggle(slug, 'live', live)}${toggle(slug, 'sandbox', sandbox)}
      </tr>`,
  )
  return html`<h1>Models</h1>
    <section class="card">${table('Models', ['Slug', 'Name', 'Type', 'Live', 'Sandbox'], rows, 'The catalog is empty.')}</section>`
}

export function switchOffPage({ slug, name }: ModelListing, environment: string): Markup {
  return confirmation({
    title: `Switch off ${name} (${slug}) in ${environment}?`,
    what: html`<p>Submits of it with ${environment} keys are answered 404 until it is switched on again. What is queued or runs goes on.</p>`,
    confirm: action('/models', `Switch off in ${environment}`, 'danger', { slug, environment, enabled: 'false' }),
    back: '/models',
  })
}

export function ledgerPage({ ok, accounts, entries, problems }: LedgerCheck): Markup {
  return html`<h1>Ledger check</h1>
    <p class="${ok ? 'notice' : 'problem'}" role="status">
      ${ok ? 'The ledger sums to zero, and every reserve has its end.' : `${problems.length} problems were found.`}
    </p>
    <section class="card">
      <p>${accounts} accounts, ${entries} entries</p>
      <ul>
        ${problems.map((problem) => html`<li>${problem}</li>`)}
      </ul>
    </section>`
}
