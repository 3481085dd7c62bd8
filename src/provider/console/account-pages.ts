import { randomUUID } from 'node:crypto'
import { html } from 'hono/html'
import { type Markup, confirmation, facts, moment, numbers, table, tabs } from '../../platform/pages/parts.ts'
import type { Account } from '../../wire/schemas.ts'
import { type CreatedKey, type KeyListing, listedRows } from '../accounts/keys.ts'
import type { LedgerCheck } from '../accounts/ledger.ts'
import { faultsSchema } from '../domain/faults.ts'
import { accountLink, badge, accountPath, requestLink } from './parts.ts'
import type { AccountRow, EntryRow } from './reads.ts'

export function accountsPage(accounts: readonly AccountRow[]): Markup {
  const account = { head: 'Account', kind: 'wide' } as const
  const columns = [account, ...numbers('Credits to spend', 'Reserved', 'Unfinished', 'Keys')]
  const rows = accounts.map(({ id, ...of }) => [accountLink(id), of.available, of.reserved, of.unfinished, of.keys])
  return html`<div class="head">
      <h1>Accounts</h1>
      <span class="soft">
        An account owns keys and pays in credits. A live request reserves its price until it ends.
      </span>
    </div>
    <div class="columns">
      <section class="card">
        ${accounts.length < listedRows ? '' : html`<p class="soft">The newest ${listedRows} accounts. Find an older one by its requests.</p>`}
        ${table({ label: 'Accounts', columns, rows, empty: 'No account yet. Create a key to create its account.' })}
      </section>
      <section class="card">${newKeyForm('')}</section>
    </div>`
}

export const accountTabs = ['keys', 'ledger'] as const
export type AccountTab = (typeof accountTabs)[number]

/** An account: its credits and usage, its keys or its ledger, and links to the lists of all accounts. */
export function accountPage(read: Account, current: AccountTab, body: Markup): Markup {
  const { account_id: account, balance, usage_30d: usage } = read
  const of = new URLSearchParams({ account }).toString()
  const own = { keys: 'Keys', ledger: 'Ledger' }
  const lists = { requests: 'Requests', deliveries: 'Webhooks' }
  return html`<div class="head">
      <h1>${account}</h1>
      <span class="soft"><b>${balance.credits}</b> credits to spend. Last 30 days: <b>${usage.requests}</b> live requests, <b>${usage.credits_spent}</b> credits spent. A live request reserves its price, and a failed one is refunded. Sandbox requests are free.</span>
    </div>
    ${tabs('Account', [
      ...accountTabs.map((tab) => ({
        label: own[tab],
        href: `${accountPath(account)}?tab=${tab}`,
        current: tab === current,
      })),
      ...Object.entries(lists).map(([path, label]) => ({ label, href: `/${path}?${of}`, current: false })),
    ])}
    ${body}`
}

export function keysTab(account: string, keys: readonly KeyListing[], pages: Markup): Markup {
  return html`<section class="card">
      <p class="soft">
        Send an API key with each request. The whole key, and the secret that signs its webhooks, are shown once, when
        it is created.
      </p>
      ${keyTable(keys)} ${pages}</section>
    <section class="card">${newKeyForm(account)}</section>`
}

export function ledgerTab(account: string, entries: readonly EntryRow[], pages: Markup): Markup {
  return html`<section class="card">
      <form class="inline" method="post" action="${accountPath(account)}/credits">
        <input type="hidden" name="id" value="${randomUUID()}" autocomplete="off" />
        <label>Credits to grant <input name="credits" inputmode="decimal" required /></label>
        <button>Grant</button>
      </form>
    </section>
    <section class="card">
      <p class="soft">
        A live request reserves its price. It is charged when the request completes, and refunded otherwise. The ledger
        keeps two entries for each movement, which sum to zero.
      </p>
      ${movementTable(entries)} ${pages}</section>`
}

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

function keyTable(keys: readonly KeyListing[]): Markup {
  const rows = keys.map(({ id, name, environment, scopes, hint, faults, created_at, revoked_at }) => [
    name,
    environment,
    html`<span class="mono">…${hint}</span>`,
    scopes.join(', '),
    faults === null
      ? ''
      : html`<span class="mono">${Object.entries(faults).map(([fault, value]) => `${fault}=${value} `)}</span>`,
    moment(created_at),
    html`<div class="inline">
      ${revoked_at === null ? html`<a class="button quiet" href="/keys/${id}/revoke">Revoke…</a>` : html`revoked ${moment(revoked_at)}`}
      ${environment === 'sandbox' && revoked_at === null ? html`<a class="button quiet" href="/keys/${id}/faults">Faults…</a>` : ''}
    </div>`,
  ])
  const columns = [{ head: 'Name', kind: 'wide' }, 'Environment', 'Key', 'Scopes', 'Faults', 'Created', ''] as const
  return table({ label: 'API keys', columns, rows, empty: 'No key yet.' })
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
        <option value="sandbox">sandbox: a sample at once, free</option>
        <option value="live">live: generated and charged</option>
      </select>
    </label>
    ${scopeBox('generate', 'submit requests')} ${scopeBox('read', 'reserved: every key may read')}
    <button>Create key</button>
  </form>`
}

function scopeBox(scope: string, allows: string): Markup {
  return html`<label>
    <input type="checkbox" name="scopes" value="${scope}" checked /> ${scope} <span class="hint">${allows}</span>
  </label>`
}

/** The only time that the key and its signing secret are shown (spec, Authentication 3 and 7). */
export function createdKeyPage(key: CreatedKey): Markup {
  return html`<h1>Key ${key.name}</h1>
    <p class="notice" role="status">Copy both now. They are shown only once and cannot be recovered.</p>
    <section class="card">
      ${facts([
        ['API key', html`<span class="mono" data-copy="${key.api_key}" id="api-key">${key.api_key}</span>`],
        [
          'Signing secret',
          html`<span class="mono" data-copy="${key.signing_secret}" id="signing-secret">${key.signing_secret}</span>`,
        ],
        ['Account', accountLink(key.account)],
        ['Environment', badge(key.environment)],
        ['Scopes', key.scopes.join(', ')],
      ])}
    </section>`
}

/** Asks to confirm a revocation. */
export function revokePage({ id, account, name, environment, hint }: KeyListing): Markup {
  return html`<h1>Keys of ${account}</h1>${confirmation({
    title: `Revoke the ${environment} key ${name} (…${hint})?`,
    what: html`<p>Calls with this key are answered 401 from now on. This cannot be undone. Unfinished requests continue, and their webhooks are still signed with its secret.</p>`,
    confirm: {
      path: `/keys/${id}/revoke`,
      label: `Revoke the ${environment} key`,
      tone: 'danger',
      fields: { account },
    },
    back: accountPath(account),
  })}`
}

/** The faults that a sandbox key injects: shares from 0 to 1, and seconds. */
export function faultsPage({ id, name, account, faults }: KeyListing): Markup {
  const fields = Object.entries(faultsSchema.shape).map(([fault, schema]) => {
    const value = Object.entries(faults ?? {}).find(([key]) => key === fault)?.[1]
    const max = fault.endsWith('_seconds') ? 3600 : 1
    const unit = fault.endsWith('_seconds') ? 'Seconds, 0 to 3600.' : 'A share, 0 to 1.'
    return html`<label>
      ${fault} <input type="number" name="${fault}" min="0" max="${max}" step="any" value="${value ?? ''}" />
      <span class="hint">${schema.description}. ${unit}</span>
    </label>`
  })
  return html`<h1>Faults of ${name}</h1>
    <section class="card">
      <p class="soft">An empty field injects no fault, and an empty form clears all. A share of 0.5 injects the fault in half of all cases.</p>
      <form method="post" action="/keys/${id}/faults">
        <div class="faults">${fields}</div>
        <button>Set</button>
      </form>
    </section>
    <p>Back to ${accountLink(account)}</p>`
}
