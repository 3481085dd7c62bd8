import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { moment, numbers, table } from '../../platform/pages/parts.ts'
import type { LedgerCheck } from '../accounts/ledger.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { catalogEntry } from '../catalog/catalog.ts'
import { environments } from '../domain/schema.ts'
import type { ModelListing } from '../operating/commands.ts'
import { requestLink } from './parts.ts'
import type { EntryRow } from './reads.ts'

/** The entries as stored: the credits that a movement adds to a book or, below zero, takes from it. */
export function movementTable(entries: readonly EntryRow[], empty = 'No credits have moved yet.'): Markup {
  const rows = entries.map(({ kind, book, amount, request_id, created_at }) => [
    moment(created_at),
    kind,
    book,
    amount,
    request_id === null ? '' : requestLink(request_id),
  ])
  const columns = [{ head: 'Time', kind: 'wide' } as const, 'Movement', 'Book', ...numbers('Credits'), 'Request']
  return table({ label: 'Ledger', columns, rows, empty })
}

/** The models with price, capabilities, and the environments in which they are off. */
export function modelsPage(models: readonly ModelListing[], catalog: Catalog): Markup {
  const rows = models.flatMap(({ slug, type, name, ...isOn }) => {
    const model = catalog.get(slug)
    if (model === undefined) return []
    const off = environments.filter((environment) => !isOn[environment])
    return [
      [
        html`<a href="/models/${encodeURIComponent(slug)}">${name}</a>`,
        html`<span class="mono">${slug}</span>`,
        `${type}: ${model.capabilities.join(', ')}`,
        `${catalogEntry(model).pricing.credits} credits ${model.note ?? ''}`,
        off.length === 0 ? 'on' : `off in ${off.join(' and ')}`,
      ],
    ]
  })
  const columns = ['Model', 'Slug', { head: 'Makes', kind: 'wide' }, { head: 'Price', kind: 'wide' }, 'State'] as const
  const empty = 'The catalog is empty. Set PROVIDER_CATALOG.'
  return html`<div class="head">
      <h1>Models</h1>
      <span class="soft">Choose a model to run it. Credits are reserved on a live submit and refunded on failure. The sandbox is free.</span>
    </div>
    <section class="card">${table({ label: 'Models', columns, rows, empty })}</section>`
}

export function ledgerPage({ ok, accounts, entries, problems }: LedgerCheck): Markup {
  return html`<h1>Ledger check</h1>
    <p class="${ok ? 'notice' : 'problem'}" role="status">
      ${ok ? 'The ledger sums to zero, and only requests that have not ended have open reservations.' : 'The check found problems. At most 100 are listed.'}
    </p>
    <section class="card">
      <p>${accounts} accounts, ${entries} entries</p>
      <ul>
        ${problems.map((problem) => html`<li>${problem}</li>`)}
      </ul>
    </section>`
}
