import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { confirmation, moment, numbers, table } from '../../platform/pages/parts.ts'
import type { LedgerCheck } from '../accounts/ledger.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { catalogEntry } from '../catalog/catalog.ts'
import { environments } from '../domain/schema.ts'
import type { ModelListing } from '../operating/commands.ts'
import { requestLink } from './parts.ts'
import type { EntryRow } from './reads.ts'

/** The name of each movement, and its signs for the credits to spend and for the reserved ones. */
const movements: Record<EntryRow['kind'], readonly [name: string, toSpend: string, reserved: string]> = {
  grant: ['granted', '+', ''],
  reserve: ['reserved', '-', '+'],
  settle: ['charged', '', '-'],
  refund: ['refunded', '+', '-'],
}

/** One row for each movement, of which one of its two entries is given. */
export function movementTable(entries: readonly EntryRow[], empty = 'No credits have moved yet.'): Markup {
  const rows = entries.map(({ kind, amount, request_id, created_at }) => {
    const [name, toSpend, reserved] = movements[kind]
    const signed = (sign: string) => (sign === '' ? '' : `${sign}${amount.replace('-', '')}`)
    const request = request_id === null ? '' : requestLink(request_id)
    return [moment(created_at), name, signed(toSpend), signed(reserved), request]
  })
  const columns = [{ head: 'Time', kind: 'wide' } as const, 'Movement', ...numbers('To spend', 'Reserved'), 'Request']
  return table({ label: 'Ledger', columns, rows, empty })
}

/** A sample of what a model makes. Four pictures take turns. */
function sampleOf(type: ModelListing['type'], place: number): Markup {
  if (type === 'video') return html`<video src="/assets/video.mp4" muted preload="metadata" aria-hidden="true"></video>`
  if (type === 'audio') return html`<span aria-hidden="true">♪</span>`
  return html`<img src="/assets/image-${place % 4}.webp" alt="" loading="lazy" />`
}

/** The models as cards with a sample, price, capabilities, and the environments in which they are off. */
export function modelsPage(models: readonly ModelListing[], catalog: Catalog): Markup {
  const cards = models.flatMap(({ slug, type, name, ...isOn }, place) => {
    const model = catalog.get(slug)
    if (model === undefined) return []
    const { credits } = catalogEntry(model).pricing
    const off = environments.filter((environment) => !isOn[environment])
    return [
      html`<a class="card model-card" href="/models/${encodeURIComponent(slug)}">
        <span class="sample">${sampleOf(model.type, place)}</span>
        <b>${name}</b> <span class="mono soft">${slug}</span>
        <span class="soft">${type}: ${model.capabilities.join(', ')}</span>
        <span>${credits} credits ${model.note ?? ''}</span>
        ${off.length === 0 ? '' : html`<span class="soft">off in ${off.join(' and ')}</span>`}
      </a>`,
    ]
  })
  return html`<div class="head">
      <h1>Models</h1>
      <span class="soft">Choose a model to run it. Credits are reserved on a live submit and refunded on failure. The sandbox is free.</span>
    </div>
    ${cards.length === 0 ? html`<p class="empty">The catalog is empty. Set PROVIDER_CATALOG.</p>` : html`<div class="model-cards">${cards}</div>`}`
}

export function switchOffPage({ slug, name }: ModelListing, environment: string): Markup {
  return html`<h1>Models</h1>${confirmation({
    title: `Switch off ${name} (${slug}) in ${environment}?`,
    what: html`<p>Submits with ${environment} keys are answered 404 until it is switched on again. Queued and running requests continue.</p>`,
    confirm: {
      path: '/models',
      label: `Switch off in ${environment}`,
      tone: 'danger',
      fields: { slug, environment, enabled: 'false' },
    },
    back: `/models/${encodeURIComponent(slug)}`,
  })}`
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
