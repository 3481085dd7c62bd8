import { randomUUID } from 'node:crypto'
import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import type { CreatedKey, KeyListing } from '../accounts/keys.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { faultsSchema } from '../domain/faults.ts'
import type { DeliveryListing } from '../webhooks/delivery-history.ts'
import { entryTable } from './activity-pages.ts'
import { deliveryTable } from './delivery-table.ts'
import { listTable } from './list-table.ts'
import { accountLink, action, badge, confirmation, time } from './parts.ts'
import { type AccountRow, accountsShown, type EntryRow } from './reads.ts'
import type { ListedRequest } from './request-search.ts'
import { requestTable } from './requests-page.ts'

export function accountsPage(accounts: readonly AccountRow[]): Markup {
  const numbers = ['Balance', 'Reserved', 'Unfinished requests', 'Keys'].map((head) => ({
    head,
    kind: 'number' as const,
  }))
  const columns = [{ head: 'Account', kind: 'wide' as const }, ...numbers]
  const rows = accounts.map(({ id, available, reserved, unfinished, keys }) => [
    accountLink(id),
    available,
    reserved,
    unfinished,
    keys,
  ])
  return html`<h1>Accounts</h1>
    <div class="columns">
      <section class="card">
        ${accounts.length < accountsShown ? '' : html`<p class="soft">The newest ${accountsShown} accounts. An older one is found by its requests, and has its page at <span class="mono">/accounts/</span> and its name.</p>`}
        ${listTable({ label: 'Accounts', columns, rows, empty: 'No account yet: the first key makes one.' })}
      </section>
      <section class="card">${newKeyForm('')}</section>
    </div>`
}

export type AccountView = {
  account: string
  available: string
  keys: readonly KeyListing[]
  /** The last key's id, when there may be older ones. */
  keysOlderThan: string | undefined
  entries: readonly EntryRow[]
  /** The last entry's id, when there are older ones. */
  olderThan: number | undefined
  requests: readonly ListedRequest[]
  deliveries: readonly DeliveryListing[]
  catalog: Catalog
  now: Date
}

export function accountPage({
  account,
  available,
  keys,
  keysOlderThan,
  entries,
  olderThan,
  requests,
  deliveries,
  catalog,
  now,
}: AccountView): Markup {
  const here = `/accounts/${encodeURIComponent(account)}`
  const of = new URLSearchParams({ account }).toString()
  return html`<h1>${account}</h1>
    <div class="tiles">
      <div class="tile"><b>${available}</b><span>credits to spend</span></div>
    </div>
    <section class="card"><h2>API keys</h2>${keyTable(keys)} ${keysOlderThan === undefined ? '' : html`<p><a href="${here}?keys_before=${keysOlderThan}">Older keys</a></p>`}</section>
    <section class="card columns">
      <div>${newKeyForm(account)}</div>
      <form method="post" action="${here}/credits">
        <h2>Grant credits</h2>
        <input type="hidden" name="id" value="${randomUUID()}" autocomplete="off" />
        <label>Credits <input name="credits" inputmode="decimal" required /></label>
        <button>Grant</button>
      </form>
    </section>
    <section class="card"><h2>Requests</h2>${requestTable(requests, { catalog, now })}</section>
    <section class="card">
      <h2>Webhook deliveries</h2>
      ${deliveryTable(deliveries)}
      <p><a href="/deliveries?${of}">All of them</a> · <a href="/deliveries/test?${of}">Send a test…</a></p>
    </section>
    <section class="card">
      <h2>Ledger</h2>
      ${entryTable(entries)} ${olderThan === undefined ? '' : html`<p><a href="${here}?before=${olderThan}">Older entries</a></p>`}
    </section>`
}

function keyTable(keys: readonly KeyListing[]): Markup {
  const rows = keys.map(({ id, name, environment, scopes, hint, faults, created_at, revoked_at }) => [
    name,
    environment,
    html`<span class="mono">…${hint}</span>`,
    scopes.join(', '),
    faults === null
      ? ''
      : html`<span class="mono">${Object.entries(faults).map(([fault, value]) => `${fault}=${value} `)}</span>`,
    time(created_at),
    html`<div class="inline">
      ${revoked_at === null ? html`<a class="button quiet" href="/keys/${id}/revoke">Revoke…</a>` : html`revoked ${time(revoked_at)}`}
      ${revoked_at === null ? html`<a class="button quiet" href="/deliveries/test?key=${id}">Send a test…</a>` : ''}
      ${environment === 'sandbox' && revoked_at === null ? html`<a class="button" href="/keys/${id}/faults">Faults</a>` : ''}
    </div>`,
  ])
  const columns = [
    { head: 'Name', kind: 'wide' as const },
    ...['Environment', 'Key', 'Scopes', 'Faults', 'Created (UTC)'].map((head) => ({ head })),
    { head: '', kind: 'wide' as const },
  ]
  return listTable({ label: 'API keys', columns, rows, empty: 'No key yet.' })
}

function newKeyForm(account: string): Markup {
  return html`<form method="post" action="/keys">
    <h2>New API key</h2>
    <input type="hidden" name="id" value="${randomUUID()}" />
    <label>Account <input name="account" value="${account}" required maxlength="100" /></label>
    <label>Name <input name="name" required maxlength="100" /></label>
    <label>
      Environment
      <select name="environment">
        <option value="sandbox">sandbox</option>
        <option value="live">live</option>
      </select>
    </label>
    <label><input type="checkbox" name="scopes" value="generate" checked /> generate</label>
    <label><input type="checkbox" name="scopes" value="read" checked /> read</label>
    <button>Create key</button>
  </form>`
}

/** The only time that the key and its signing secret are shown (spec, Authentication 3 and 7). */
export function createdKeyPage(key: CreatedKey): Markup {
  return html`<h1>Key ${key.name}</h1>
    <p class="notice" role="status">Copy both now: they are shown this once and cannot be recovered.</p>
    <section class="card">
      <dl class="facts">
        <dt>API key</dt>
        <dd class="mono" id="api-key">${key.api_key}</dd>
        <dt>Signing secret</dt>
        <dd class="mono" id="signing-secret">${key.signing_secret}</dd>
        <dt>Account</dt>
        <dd>${accountLink(key.account)}</dd>
        <dt>Environment</dt>
        <dd>${badge(key.environment)}</dd>
        <dt>Scopes</dt>
        <dd>${key.scopes.join(', ')}</dd>
      </dl>
    </section>`
}

/** Nobody revokes a key by a slip: what signs with it goes on, what calls with it ends. */
export function revokePage({ id, account, name, environment, hint }: KeyListing): Markup {
  return confirmation({
    title: `Revoke the ${environment} key ${name} (…${hint})?`,
    what: html`<p>Calls with it are answered 401 from the next one on, and this cannot be taken back. Requests that run go on, and their webhooks are still signed with its secret.</p>`,
    confirm: action(`/keys/${id}/revoke`, `Revoke the ${environment} key`, 'danger', { account }),
    back: `/accounts/${encodeURIComponent(account)}`,
  })
}

/** The trouble that a sandbox key asks for: shares from 0 to 1, and seconds. */
export function faultsPage({ id, name, account, faults }: KeyListing): Markup {
  const fields = Object.keys(faultsSchema.shape).map((fault) => {
    const value = Object.entries(faults ?? {}).find(([key]) => key === fault)?.[1]
    const max = fault.endsWith('_seconds') ? 3600 : 1
    return html`<label>
      ${fault} <input type="number" name="${fault}" min="0" max="${max}" step="any" value="${value ?? ''}" />
    </label>`
  })
  return html`<h1>Faults of ${name}</h1>
    <section class="card">
      <p class="soft">Shares are parts of all requests or webhook attempts, from 0 to 1. Empty means never.</p>
      <form method="post" action="/keys/${id}/faults">
        ${fields}
        <button>Set</button>
      </form>
    </section>
    <section class="card">${action(`/keys/${id}/faults/clear`, 'Clear all')}</section>
    <p>Back to ${accountLink(account)}</p>`
}
