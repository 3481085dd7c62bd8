import { html } from 'hono/html'
import { type Markup, action, facts, table } from '../../platform/pages/parts.ts'
import { listedRows, type UsableKey } from '../accounts/keys.ts'
import type { Catalog, CatalogModel } from '../catalog/catalog-model.ts'
import { catalogEntry } from '../catalog/catalog.ts'
import { type Environment, environments } from '../domain/schema.ts'
import type { ModelListing } from '../operating/commands.ts'
import { type FieldTexts, inputFields } from './input-form.ts'
import { accountLink, badge } from './parts.ts'

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

/** The values of the form. */
export type Filled = {
  texts: FieldTexts
  keyId: string
  webhookUrl: string
  /** A form that is sent twice creates one request. */
  idempotencyKey: string
}

export type ModelView = {
  model: CatalogModel
  switches: ModelListing
  keys: readonly UsableKey[]
  filled: Filled
  /** The error of the form as it was sent. */
  problem?: string
  /** The price in credits, after it was estimated. */
  credits?: number
}

export function modelPage(view: ModelView): Markup {
  const { model, switches } = view
  const { credits } = catalogEntry(model).pricing
  return html`<h1>${model.name}</h1>
    <div class="columns model">
      <section class="card">
        <h2>Run</h2>
        ${view.keys.length === 0 ? html`<p class="empty">No key may submit yet. <a href="/">Create a key</a> first.</p>` : runForm(view)}
      </section>
      <section class="card">
          <h2>About</h2>
          ${facts([
            ['Slug', html`<span class="mono">${model.slug}</span>`],
            ['Makes', `${model.type}: ${model.capabilities.join(', ')}`],
            ['Price', `${credits} credits ${model.note ?? 'at the defaults'}`],
            ...environments.map((each) => [`In ${each}`, modelSwitch(model.slug, each, switches[each])] as const),
          ])}
      </section>
    </div>`
}

function modelSwitch(slug: string, environment: Environment, enabled: boolean): Markup {
  const label = `Switch ${enabled ? 'off' : 'on'} in ${environment}`
  const fields = { slug, environment, enabled: String(!enabled) }
  return html`<div class="inline">
    ${badge(enabled ? 'on' : 'off')} ${action({ path: '/models', label, tone: enabled ? 'danger' : 'quiet', fields })}
  </div>`
}

function runForm({ model, keys, filled, problem, credits }: ModelView): Markup {
  const here = `/models/${encodeURIComponent(model.slug)}`
  const chosen = keys.find(({ id }) => id === filled.keyId)
  return html`<form method="post" action="${here}/run" class="run">
    ${problem === undefined ? '' : html`<p class="problem" role="alert">${problem}</p>`}
    <input type="hidden" name="idempotency_key" value="${filled.idempotencyKey}" autocomplete="off" />
    <div class="field">
      <label for="key">Account and key</label>
      <select id="key" name="key" required>
        ${
          // No other key is chosen instead of a missing one: it might charge another account.
          filled.keyId !== '' && chosen === undefined
            ? html`<option value="" selected>that key is not available: choose another</option>`
            : ''
        }
        ${keys.map(({ id, account, name, environment, hint }) => html`<option value="${id}" ${id === filled.keyId ? html`selected` : ''}>${account} · ${name} · ${environment} (…${hint})</option>`)}
      </select>
      ${keys.length === listedRows ? html`<p class="hint">These are the newest keys. To use an older one, start from one of its requests.</p>` : ''}
    </div>
    ${inputFields(model, filled.texts)}
    <div class="field">
      <label for="webhook_url">webhook_url</label>
      <input id="webhook_url" name="webhook_url" value="${filled.webhookUrl}" />
      <p class="hint">The https URL that receives the webhook. May be empty.</p>
    </div>
    ${credits === undefined ? '' : estimated(credits, chosen)}
    <div class="inline">
      <button>Run</button>
      <button class="quiet" formaction="${here}/estimate">Estimate the price</button>
    </div>
  </form>`
}

function estimated(credits: number, key: UsableKey | undefined): Markup {
  const whose =
    key?.environment === 'live'
      ? html`${accountLink(key.account)} has ${key.available} credits to spend.`
      : html`With a sandbox key nothing is charged.`
  return html`<p class="notice" role="status"><b id="estimate">${credits}</b> credits. ${whose}</p>`
}
