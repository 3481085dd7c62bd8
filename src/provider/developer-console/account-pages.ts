import { randomUUID } from 'node:crypto'
import { html } from 'hono/html'
import type { Markup } from '../../pages/console-page.ts'
import type { CreatedKey, KeyListing } from '../accounts/keys.ts'
import { faultsSchema } from '../domain/faults.ts'
import type { DeliveryListing } from '../webhooks/delivery-history.ts'
import { deliveryTable, entryTable } from './activity-pages.ts'
import { accountLink, action, badge, confirmation, table, time } from './parts.ts'
import type { AccountRow, EntryRow } from './reads.ts'
import type { ListedRequest } from './request-search.ts'
import { requestTable } from './requests-page.ts'

export function accountsPage(accounts: readonly AccountRow[]): Markup {
  const rows = accounts.map(
    ({ id, available, reserved, unfinished, keys }) =>
      html`<tr>
        <td>${accountLink(id)}</td>
        <td class="number">${available}</td>
        <td class="number">${reserved}</td>
        <td class="number">${unfinished}</td>
        <td class="number">${keys}</td>
      </tr>`,
  )
  return html`<h1>Accounts</h1>
    <div class="columns">
      <section class="card">
        ${table('Accounts', ['Account', 'Balance', 'Reserved', 'Unfinished requests', 'Keys'], rows, 'No account yet: the first key makes one.')}
      </section>
      <section class="card">${newKeyForm('')}</section>
    </div>`
}

export type AccountView = {
  account: string
  available: string
  keys: readonly KeyListing[]
  entries: readonly EntryRow[]
  /** The last entry's id, when there are older ones. */
  olderThan: string | undefined
  requests: readonly ListedRequest[]
  deliveries: readonly DeliveryListing[]
  now: Date
}

export function accountPage({ account, available, keys, entries, olderThan, requests, deliveries, now }: AccountView): Markup {
  const here = `/accounts/${encodeURIComponent(account)}`
  return html`<h1>${account}</h1>
    <div class="tiles">
      <div class="tile"><b>${available}</b><span>credits to spend</span></div>
    </div>
    <section class="card"><h2>API keys</h2>${keyTable(keys)}</section>
    <section class="card columns">
      <div>${newKeyForm(account)}</div>
      <form method="post" action="${here}/credits">
        <h2>Grant credits</h2>
        <label>Credits <input name="credits" inputmode="decimal" required /></label>
        <button>Grant</button>
      </form>
    </section>
    <section class="card"><h2>Requests</h2>${requestTable(requests, now)}</section>
    <section class="card"><h2>Webhook deliveries</h2>${deliveryTable(deliveries)}</section>
    <section class="card">
      <h2>Ledger</h2>
      ${entryTable(entries)} ${olderThan === undefined ? '' : html`<p><a href="${here}?before=${olderThan}">Older entries</a></p>`}
    </section>`
}

function keyTable(keys: readonly KeyListing[]): Markup {
  const rows = keys.map(
    ({ id, name, environment, scopes, hint, faults, created_at, revoked_at }) =>
      html`<tr>
        <td>${name}</td>
        <td>${environment}</td>
        <td class="mono">…${hint}</td>
        <td>${scopes.join(', ')}</td>
        <td class="mono">${faults === null ? '' : Object.entries(faults).map(([fault, value]) => `${fault}=${value} `)}</td>
        <td>${time(created_at)}</td>
        <td><div class="inline">
          ${revoked_at === null ? html`<a class="button quiet" href="/keys/${id}/revoke">Revoke…</a>` : html`revoked ${time(revoked_at)}`}
          ${environment === 'sandbox' && revoked_at === null ? html`<a class="button" href="/keys/${id}/faults">Faults</a>` : ''}
        </div></td>
      </tr>`,
  )
  return table('API keys', ['Name', 'Environment', 'Key', 'Scopes', 'Faults', 'Created (UTC)', ''], rows, 'No key yet.')
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
