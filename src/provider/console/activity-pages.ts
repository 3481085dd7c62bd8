import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import type { LedgerCheck } from '../accounts/ledger.ts'
import type { ModelListing } from '../operating/commands.ts'
import { listTable } from './list-table.ts'
import { action, badge, confirmation, requestLink, time } from './parts.ts'
import type { EntryRow } from './reads.ts'

export function entryTable(entries: readonly EntryRow[], empty = 'No credits have moved yet.'): Markup {
  const rows = entries.map(({ kind, book, amount, request_id, created_at }) => [
    time(created_at),
    kind,
    book,
    amount,
    request_id === null ? '' : requestLink(request_id),
  ])
  const columns = [
    { head: 'Time (UTC)', kind: 'wide' as const },
    { head: 'Movement' },
    { head: 'Book' },
    { head: 'Credits', kind: 'number' as const },
    { head: 'Request' },
  ]
  return listTable({ label: 'Ledger', columns, rows, empty })
}

export function modelsPage(models: readonly ModelListing[]): Markup {
  const toggle = (slug: string, environment: string, enabled: boolean) =>
    html`<div class="inline">
      ${badge(enabled ? 'on' : 'off')}
      ${enabled ? html`<a class="button quiet" href="/models/switch-off?${new URLSearchParams({ slug, environment }).toString()}">Switch off…</a>` : action('/models', 'Switch on', 'quiet', { slug, environment, enabled: 'true' })}
    </div>`
  const rows = models.map(({ slug, type, name, live, sandbox }) => [
    html`<a class="mono" href="/models/${slug}">${slug}</a>`,
    name,
    type,
    toggle(slug, 'live', live),
    toggle(slug, 'sandbox', sandbox),
  ])
  const columns = [
    { head: 'Slug', kind: 'wide' as const },
    ...['Name', 'Type', 'Live', 'Sandbox'].map((head) => ({ head })),
  ]
  return html`<h1>Models</h1>
    <section class="card">${listTable({ label: 'Models', columns, rows, empty: 'The catalog is empty.' })}</section>`
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
