import { Router } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, moment, numbers, table, time, type Row } from '../../platform/pages/parts.ts'
import { reloadKeys, type KeysPlace } from '../on-call/cause-words.ts'
import { readingOptions } from '../on-call/reading.ts'
import { readWithin } from '../queries/deadline.ts'
import { readKeys, type KeyState } from '../queries/keys.ts'
import { checkQuarantine } from '../queries/quarantine.ts'
import type { ReceiverSettings } from '../settings.ts'
import { addedSecretHint } from './parked/verify-pages.ts'
import { badge, card, duration, foreign, number, problem, sourceLine } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'

export function keysRoutes(console: ConsoleDeps): Router {
  const { db, keys, settings } = console
  return Router().get('/keys', async (_req, res) => {
    const options = await readingOptions(console)
    const states = await readWithin(db, (tx) => readKeys(tx, options))
    const check = await checkQuarantine(db, keys(), 'no_matching_secret')
    const about = 'The secret of each key verifies webhooks. Keys that are not retired also call the provider.'
    const body = html`${addedSecretHint(check)} ${states.flatMap((state) => warnings(state, options.now))}
      <div class="card table-card">${keysTable(states, settings)}</div>
      ${card('How to change keys', howTo(settings))}`
    sendConsolePage(console, res, { title: 'Keys', about, body })
  })
}

/** The facts to know before changing this key. */
function warnings(key: KeyState, now: Date): Markup[] {
  const { configured, still_matches, last_match_at, blocked_until, blocked_reason } = key
  const name = html`<b>${foreign(key.name)}</b>`
  const ago =
    last_match_at === null
      ? ''
      : html`, last ${duration(Math.max(1000, now.getTime() - Date.parse(last_match_at)))} ago, at ${time(last_match_at)}`
  const used = configured
    ? html`${name} is retired and still used: the provider signed with it${ago}. Do not remove it yet. Check at the provider which requests were submitted with it.`
    : html`${name} is no longer configured, although the provider signed with it${ago}. Webhooks that it signs now are refused. Add the key again with <code>"retired": true</code>. <a href="/parked?reason=no_matching_secret">See webhooks that no secret matches</a>`
  const why = blocks[blocked_reason ?? ''] ?? foreign(blocked_reason)
  const until =
    blocked_until === null ? 'is tried with the next call' : html`makes no calls until ${time(blocked_until)}`
  const blocked = html`${name} ${until}: ${why}`
  const isBlocked = blocked_until !== null || blocked_reason !== null
  return [...(still_matches ? [problem(used)] : []), ...(isBlocked ? [problem(blocked)] : [])]
}

const blocks: Readonly<Record<string, string>> = {
  unauthorized:
    'the provider refused this API key (401 or 403). Then one call tries again. Each further refusal doubles the pause, from 5 s up to 5 minutes. No result is marked failed because of it. If it lasts, configure a valid key. See below how to change keys.',
  rate_limited: 'the provider answered 429 and demands a pause. Calls then continue automatically.',
  provider_down: 'the provider answered 5xx and demands a pause. Calls then continue automatically.',
  rate_limit_spent: "the provider's own limit is used up until then. Calls then continue automatically.",
}

function keysTable(states: readonly KeyState[], settings: ReceiverSettings): Markup {
  return table({
    label: 'Keys',
    columns: [
      'Key',
      'Environment',
      'Secret',
      'Last match',
      { head: 'Matches', kind: 'minor number' },
      ...numbers('Calls in this minute', 'Account calls', 'Calls left'),
      'Blocked until',
    ],
    rows: states.map((state) => keyRow(state, settings.fetchRatePerMinute)),
    empty: `No key is configured. ${reloadKeys(settings)}`,
  })
}

function keyRow(key: KeyState, limit: number): Row {
  const { name, configured, source_name, environment, retired, fingerprint, first_match_at, last_match_at } = key
  const { matches, still_matches, calls, quota_left, account_calls, account_limit } = key
  const callable = configured && !retired
  const unused = html`<span class="soft">—</span>`
  return {
    id: name,
    cells: [
      html`<a href="${linkTo('/deliveries', { key_name: name })}">${foreign(name, 40)}</a> ${configured ? '' : badge('not configured', 'bad')} ${retired ? badge('retired', '') : ''} ${still_matches ? badge('still used', 'warn') : ''}${sourceLine(source_name)}`,
      environment === null
        ? html`<span class="soft" title="The environment is known only with an api_key.">unknown</span>`
        : environment,
      fingerprint === null
        ? unused
        : html`<span class="mono" title="The first 8 hex digits of SHA-256 of the signing secret">${fingerprint}</span>`,
      last_match_at === null
        ? html`<span class="soft">never</span>`
        : html`<span title="First match ${first_match_at ?? ''}">${moment(last_match_at)}</span>`,
      number(matches),
      callable ? callsOf(calls, limit) : unused,
      callable && account_calls !== null && account_limit !== null
        ? html`<span title="All keys of the account ${key.account_id}">${callsOf(account_calls, account_limit)}</span>`
        : unused,
      !callable ? unused : quota_left === 0 ? badge('0', 'bad') : number(quota_left),
      blockOf(key, unused),
    ],
  }
}

function blockOf({ blocked_until, blocked_reason }: KeyState, unused: Markup): Markup {
  if (blocked_until === null && blocked_reason === null) return unused
  const until = blocked_until === null ? 'the next call' : time(blocked_until, 'clock')
  return html`${until} ${badge(blocked_reason ?? 'blocked')}`
}

function callsOf(calls: number, limit: number): Markup {
  return html`${number(calls)} <span class="soft">of ${number(limit)}</span>`
}

function howTo(keys: KeysPlace): Markup {
  return html`<ol class="plain">
      <li>Add the new key beside the old one. Both are valid at once, so no webhook is refused. ${reloadKeys(keys)}</li>
      <li>Set <code>"retired": true</code> on the old key, and apply the change in the same way. It still verifies webhooks, but makes no calls.</li>
      <li>Remove the old key when its last match is longer ago than your longest request takes, plus 15 minutes for repeated webhooks. Webhooks signed with a removed key are refused.</li>
      <li>If webhooks were refused meanwhile, <a href="/parked/verify?reason=no_matching_secret">verify the quarantine again</a>.</li>
    </ol>
    <p class="soft">To check that a secret is the one of the provider, compare fingerprints: <code>printf %s "$SECRET" | sha256sum | cut -c1-8</code>. The secret itself is never shown.</p>`
}
