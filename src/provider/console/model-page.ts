import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { action, facts, table } from '../../platform/pages/parts.ts'
import { listedRows } from '../accounts/keys.ts'
import type { UsableKey } from '../accounts/usable-keys.ts'
import type { CatalogModel } from '../catalog/catalog-model.ts'
import { catalogEntry } from '../catalog/catalog.ts'
import { type Environment, environments } from '../domain/schema.ts'
import type { ModelListing } from '../operating/commands.ts'
import { type FieldProblems, type FieldTexts, inputFields } from './input-form.ts'
import { accountLink, badge, fieldProblem, keyOption, markedWith } from './parts.ts'

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
  /** The last request of this form. Its result is shown beside the form. */
  requestId?: string | undefined
  problems: FieldProblems
  /** An error that belongs to no field. */
  problem?: string | undefined
  /** The price in credits, after it was estimated. */
  estimate?: { credits: number; key: UsableKey | undefined } | undefined
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
      <div>
        ${view.requestId === undefined ? '' : resultBeside(view.requestId)}
        <section class="card">
          <h2>About</h2>
          ${facts([
            ['Slug', html`<span class="mono">${model.slug}</span>`],
            ['Makes', `${model.type}: ${model.capabilities.join(', ')}`],
            ['Price', `${credits} credits ${model.note ?? 'at the defaults'}`],
            ...environments.map((each) => [`In ${each}`, modelSwitch(model.slug, each, switches[each])] as const),
          ])}
          ${factors(model)}
        </section>
      </div>
    </div>`
}

/** Status, progress, cost and media of the last run, fetched until it has ended. */
function resultBeside(id: string): Markup {
  return html`<h2>Result</h2>
    <div id="state" hx-get="/requests/${id}/now?polls=1&brief=1" hx-trigger="load" hx-swap="outerMorph">
      <p><a href="/requests/${id}">Open the request</a></p>
    </div>`
}

function modelSwitch(slug: string, environment: Environment, enabled: boolean): Markup {
  const off = new URLSearchParams({ slug, environment }).toString()
  const on = { slug, environment, enabled: 'true' }
  return html`<div class="inline">
    ${badge(enabled ? 'on' : 'off')}
    ${enabled ? html`<a href="/models/switch-off?${off}">Switch off in ${environment}…</a>` : action({ path: '/models', label: `Switch on in ${environment}`, tone: 'quiet', fields: on })}
  </div>`
}

/** The factors of the price. */
function factors({ pricing: { credits_base: base, multipliers = {} } }: CatalogModel): Markup | '' {
  const names = Object.entries(multipliers)
  if (names.length === 0) return ''
  const rows = names.flatMap(([name, byValue]) =>
    Object.entries(byValue).map(([value, factor]) => [name, value, `× ${factor}`]),
  )
  const columns = ['Parameter', 'Value', { head: 'Factor', kind: 'number' }] as const
  return html`<details>
    <summary>How the price is computed: ${base} × ${names.map(([name]) => name).join(' × ')}</summary>
    ${table({ label: 'Factors of the price', columns, rows })}
  </details>`
}

function runForm({ model, keys, filled, problems, problem, estimate }: ModelView): Markup {
  const here = `/models/${encodeURIComponent(model.slug)}`
  const ofEnvironment = (environment: string) => keys.filter((key) => key.environment === environment)
  const groups = [
    ['Sandbox: a sample at once, nothing is charged', ofEnvironment('sandbox')],
    ['Live: generated and charged', ofEnvironment('live')],
  ] as const
  // No other key is chosen instead: it might charge another account.
  const isGone = filled.keyId !== '' && !keys.some(({ id }) => id === filled.keyId)
  return html`<form method="post" action="${here}/run" class="run">
    ${problem === undefined ? '' : html`<p class="problem" role="alert">${problem}</p>`}
    ${Object.keys(problems).length === 0 ? '' : html`<p class="problem" role="alert">Nothing was run: see ${Object.keys(problems).join(', ')}.</p>`}
    <input type="hidden" name="idempotency_key" value="${filled.idempotencyKey}" autocomplete="off" />
    <div class="field">
      <label for="key">Account and key</label>
      <select id="key" name="key" required ${markedWith('key', problems['key'])}>
        ${isGone ? html`<option value="" selected>that key is not available: choose another</option>` : ''}
        ${groups
          .filter(([, members]) => members.length > 0)
          .map(
            ([label, members]) => html`<optgroup label="${label}">
              ${members.map((key) => keyOption(key, filled.keyId))}
            </optgroup>`,
          )}
      </select>
      ${isGone && problems['key'] === undefined ? html`<p class="hint">This key does not exist, is revoked, or may not submit.</p>` : ''}
      ${keys.length === listedRows ? html`<p class="hint">These are the newest keys. To use an older one, start from one of its requests.</p>` : ''}
      ${fieldProblem('key', problems['key'])}
    </div>
    ${inputFields(model, filled.texts, problems)}
    <div class="field">
      <label for="webhook_url">webhook_url</label>
      <input id="webhook_url" name="webhook_url" value="${filled.webhookUrl}" ${markedWith('webhook_url', problems['webhook_url'])} />
      <p class="hint">The https URL that receives the webhook. May be empty.</p>
      ${fieldProblem('webhook_url', problems['webhook_url'])}
    </div>
    ${estimate === undefined ? '' : estimated(estimate)}
    <div class="inline">
      <button>Run</button>
      <button class="quiet" formaction="${here}/estimate">Estimate the price</button>
    </div>
  </form>`
}

function estimated({ credits, key }: NonNullable<ModelView['estimate']>): Markup {
  const whose =
    key?.environment === 'live'
      ? html`${accountLink(key.account)} has ${key.available} credits to spend.`
      : key?.environment === 'sandbox'
        ? html`With a sandbox key nothing is charged.`
        : ''
  return html`<p class="notice" role="status"><b id="estimate">${credits}</b> credits. ${whose}</p>`
}
