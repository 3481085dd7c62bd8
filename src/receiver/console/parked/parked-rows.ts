import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { facts, type Fact, moment, table, time } from '../../../platform/pages/parts.ts'
import { pathIn } from '../../domain/webhook-path.ts'
import { placeOf, todoOf, wordsOf, type CausePlace, type KeysPlace } from '../../on-call/cause-words.ts'
import { landingExtent } from '../../on-call/problems.ts'
import { readParkedCauses, readQuarantineCauses, type Cause } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { listDeliveries, type DeliveryEntry } from '../../queries/deliveries.ts'
import { deliveryListSchema, parseFilters, quarantineListSchema } from '../../queries/filters.ts'
import { listGiveUps, type GiveUp } from '../../queries/give-ups.ts'
import type { Page } from '../../queries/page.ts'
import { checkQuarantine, listQuarantine, type QuarantinedEntry } from '../../queries/quarantine.ts'
import { deliveriesTable } from '../deliveries/delivery-rows.ts'
import { sourceFields, webhookIdField } from '../parts/filter-bar.ts'
import { listView } from '../parts/list-view.ts'
import { card, code, foreign, number, size, sourceLine, titleOfCause } from '../parts/parts.ts'
import type { ConsoleDeps } from '../parts/shell.ts'
import { linkTo, without, type Query } from '../parts/url.ts'
import { addedSecretHint } from './verify-pages.ts'

const path = '/parked'
const looks = ['view', 'open']
const viewSchema = z.enum(['quarantine', 'parked'], 'must be quarantine or parked').optional()

type View = { body: Markup; status: number }
type Read = { causes: readonly Cause[] }

/** The quarantine or the parked deliveries, of one cause or of all. */
export async function causeView(console: ConsoleDeps, query: Query): Promise<View> {
  const { view } = parseFilters(z.object({ view: viewSchema }), { view: query['view'] })
  const place = view ?? (query['reason'] === undefined ? 'quarantine' : placeOf(query['reason']))
  // The form and every link of the page keep the place.
  const here = { ...query, view: place }
  return place === 'quarantine' ? quarantineView(console, here) : parkedView(console, here)
}

async function quarantineView(console: ConsoleDeps, query: Query): Promise<View> {
  const { db, keys, settings, clock } = console
  const { reason } = query
  const read = async () => {
    const listed = await listQuarantine(db, keys(), parseFilters(quarantineListSchema, without(query, ...looks)))
    const check = await checkQuarantine(db, keys(), reason ?? 'no_matching_secret')
    const giveUps = await readWithin(db, (tx) => listGiveUps(tx, clock()))
    const failing = giveUps.filter((one) => one.reason === reason && !one.given_up)
    return { listed, causes: await readWithin(db, readQuarantineCauses), check, failing }
  }
  const bar = (value?: Read) => ({ path, query, keep: ['view'], fields: [webhookIdField, reasonField(value?.causes)] })
  const { status, body, value } = await listView(console, bar, read, ({ listed, causes }) => {
    const all = count(causes, reason)
    const verify = html`<div class="bulk"><a class="button quiet" href="${linkTo('/parked/verify', { reason })}">Verify ${all === 1 ? 'it' : `${reason === undefined ? 'all' : 'these'} ${number(all)}`} again…</a></div>`
    return html`${all > 0 ? verify : ''} <div class="card table-card">${quarantineTable(listed, query)}</div>`
  })
  const above = value && html`${addedSecretHint(value.check)} ${about({ reason, keys: settings, ...value })}`
  return { status, body: html`${head('quarantine', reason)} ${above} <div class="below-card">${body}</div>` }
}

function quarantineTable({ data }: Page<QuarantinedEntry>, query: Query): Markup {
  return table({
    label: 'Refused arrivals',
    columns: [
      'Arrived',
      'Webhook id',
      ...(query['reason'] === undefined ? ['Cause'] : []),
      { head: 'Size', kind: 'number' },
      { head: 'Body begins', kind: 'minor' },
    ],
    rows: data.map(({ id, arrived_at, reason, webhook_id, headers, bytes, body_preview }) => ({
      id: String(id),
      cells: [
        html`<a href="/parked/quarantine/${id}">${moment(arrived_at, 'precise')}</a>
          ${sourceLine(pathIn(headers).sourceName)}`,
        html`<span class="mono">${foreign(webhook_id, 24)}</span>`,
        ...(query['reason'] === undefined ? [code(reason)] : []),
        size(bytes),
        html`<span class="mono soft">${foreign(body_preview, 64)}</span>`,
      ],
    })),
    empty: emptyQuarantine(query),
  })
}

function emptyQuarantine({ reason, webhook_id }: Query): Markup {
  const arrivals = linkTo('/deliveries', { view: 'arrivals', outcome: 'refused', reason, webhook_id })
  return html`Nothing in the quarantine matches. An arrival may have been accepted since, replaced by newer ones, or never kept: see the <a href="${arrivals}">log of arrivals</a>.`
}

async function parkedView(console: ConsoleDeps, query: Query): Promise<View> {
  const { db, settings } = console
  const { reason } = query
  const filters = { ...without(query, ...looks), state: 'parked' }
  const read = async () => ({
    listed: await listDeliveries(db, parseFilters(deliveryListSchema, filters)),
    causes: await readWithin(db, (tx) => readParkedCauses(tx)),
  })
  const bar = (value?: Read) => ({
    path,
    query,
    keep: ['view'],
    fields: [webhookIdField, reasonField(value?.causes), ...sourceFields(console.keys())],
  })
  const { status, body, value } = await listView(console, bar, read, ({ listed }) => {
    const replay = html`<div class="bulk"><a class="button quiet" data-key-action="replay" href="${linkTo('/deliveries/replay', without(filters, 'cursor'))}">${isOnly(listed, query) ? 'Replay it' : 'Replay all of these'}… <kbd>r</kbd></a></div>`
    return html`${listed.data.length > 0 ? replay : ''} <div class="card table-card">${parkedTable(listed)}</div>`
  })
  const above = about({ reason, causes: value?.causes ?? [], keys: settings })
  return { status, body: html`${head('parked', reason)} ${above} <div class="below-card">${body}</div>` }
}

function isOnly({ data, next_cursor }: Page<DeliveryEntry>, { cursor }: Query): boolean {
  return data.length === 1 && next_cursor === null && cursor === undefined
}

function parkedTable({ data }: Page<DeliveryEntry>): Markup {
  return deliveriesTable('Parked deliveries', data, {
    empty: html`No parked delivery matches. Earlier ones may have been replayed or pruned since: see all <a href="/deliveries">deliveries</a>.`,
  })
}

function head(place: CausePlace, reason: string | undefined): Markup {
  const name = place === 'quarantine' ? 'Quarantine' : 'Parked'
  return html`<p><a href="${path}">← All causes</a></p>
    <div class="head"><h1>${name}${reason === undefined ? '' : `: ${wordsOf(reason).title}`}</h1>${reason === undefined ? '' : html`<span class="mono soft">${reason}</span>`}</div>`
}

type About = {
  reason: string | undefined
  causes: readonly Cause[]
  keys: KeysPlace
  /** The webhooks of this cause that the provider may still send, the first final attempt first. */
  failing?: readonly GiveUp[]
}

function about({ reason, causes, keys, failing = [] }: About): Markup {
  if (reason === undefined) return html``
  const cause = causes.find((one) => one.reason === reason)
  return card(
    'Meaning and what to do',
    html`${causeText(reason, keys, cause?.errors)}${reason === 'no_matching_secret' ? keysExample : ''}
      ${
        cause
          ? facts([
              ['Count', number(cause.count)],
              ['First seen', time(cause.first_seen)],
              ['Last seen', time(cause.last_seen)],
              ...failingFacts(failing),
            ])
          : ''
      }`,
    { id: 'about' },
  )
}

/** The old key and the new one beside it, to copy and fill in. */
const twoKeys = `[{ "name": "live", "api_key": "OLD_API_KEY", "signing_secret": "OLD_SECRET" },
 { "name": "live-2", "api_key": "NEW_API_KEY", "signing_secret": "NEW_SECRET" }]`
const keysExample = html`<p>At the provider, a secret belongs to one API key, so a new secret comes with a new key. Keep your other keys. With your values, the configured keys then read:</p>
  <div>
    <pre class="body" data-copy="${twoKeys}" tabindex="0" role="region" aria-label="Example">${twoKeys}</pre>
  </div>`

function failingFacts(failing: readonly GiveUp[]): (Fact | false)[] {
  const named = failing.filter(({ request_key_name: name }) => name !== null)
  const keys = [...new Set(named.map(({ request_key_name: name }) => name))].join(', ')
  const [first] = failing
  return [
    named.length > 0 && [
      'For our own requests',
      html`${number(named.length)}, all of the ${keys.includes(', ') ? 'keys' : 'key'} ${foreign(keys)}`,
    ],
    first !== undefined && ["Provider's final attempt", html`from ${time(first.last_attempt_at)} on`],
  ]
}

/** The meaning of a cause, and the next step. */
export function causeText(reason: string, keys: KeysPlace, errors: Cause['errors'] = []): Markup {
  return html`<p>${wordsOf(reason).means}</p>${errorList(errors)}<p><b>What to do:</b> ${todoOf(reason, keys)}</p>`
}

/** The errors of Postgres, newest first: one line for each message and model, with the number of deliveries. */
function errorList(errors: NonNullable<Cause['errors']>): Markup | '' {
  if (errors.length === 0) return ''
  return html`<p><b>Errors of Postgres:</b></p>
    <ul>${errors.map((error) => {
      const { message, model, count: many } = error
      return html`<li>${foreign(message, 500)}<div class="soft">${number(many)}×${model === null ? '' : html` ${foreign(model, 60)}`}. ${landingExtent(error)}</div></li>`
    })}</ul>`
}

function count(causes: readonly Cause[], reason: string | undefined): number {
  return causes.reduce((sum, cause) => (reason === undefined || cause.reason === reason ? sum + cause.count : sum), 0)
}

function reasonField(causes: readonly Cause[] = []) {
  return { name: 'reason', label: 'Cause', options: causes.map(({ reason }) => reason), wordsOf: titleOfCause }
}
