import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { facts, moment, table, time } from '../../../platform/pages/parts.ts'
import { pathIn } from '../../domain/webhook-path.ts'
import { placeOf, todoOf, wordsOf, type CausePlace, type KeysPlace } from '../../on-call/cause-words.ts'
import { landingExtent } from '../../on-call/problems.ts'
import { readParkedCauses, readQuarantineCauses, type Cause } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { listDeliveries, type DeliveryEntry } from '../../queries/deliveries.ts'
import { deliveryListSchema, parseFilters, quarantineListSchema } from '../../queries/filters.ts'
import { listGiveUps, type GiveUp } from '../../queries/give-ups.ts'
import type { Page } from '../../queries/page.ts'
import { listQuarantine, type QuarantinedEntry } from '../../queries/quarantine.ts'
import { checkQuarantine } from '../../queries/quarantined.ts'
import { deliveryColumns, deliveryRow } from '../deliveries/delivery-rows.ts'
import { listTable } from '../parts/columns.ts'
import { tryRead } from '../parts/failures.ts'
import { filterBar, sourceFields } from '../parts/filter-bar.ts'
import { card, code, foreign, number, pager, size, sourceLine } from '../parts/parts.ts'
import type { ConsoleDeps } from '../parts/shell.ts'
import { linkTo, without, type Query } from '../parts/url.ts'
import { titleOfCause } from '../parts/words.ts'
import { addedSecretHint } from './verify-pages.ts'

const path = '/parked'
const looks = ['view', 'open']
const viewSchema = z.enum(['quarantine', 'parked'], 'must be quarantine or parked').optional()

type View = { body: Markup; status: number }

/** The quarantine or the parked deliveries, of one cause or of all. */
export async function causeView(console: ConsoleDeps, query: Query): Promise<View> {
  const { view } = parseFilters(z.object({ view: viewSchema }), { view: query['view'] })
  const place = view ?? (query['reason'] === undefined ? 'quarantine' : placeOf(query['reason']))
  // The form and every link of the page keep the place.
  const here = { ...query, view: place }
  return place === 'quarantine' ? quarantineView(console, here) : parkedView(console, here)
}

async function quarantineView(console: ConsoleDeps, query: Query): Promise<View> {
  const { db, keys, logger, settings, clock } = console
  const { reason } = query
  const read = await tryRead(logger, async () => {
    const page = await listQuarantine(db, keys(), parseFilters(quarantineListSchema, without(query, ...looks)))
    const check = await checkQuarantine(db, keys(), { reason: reason ?? 'no_matching_secret' })
    const failing = (await readWithin(db, (tx) => listGiveUps(tx, clock()))).filter(
      (one) => one.reason === reason && !one.given_up,
    )
    return { page, causes: await readWithin(db, readQuarantineCauses), check, failing }
  })
  const causes = read.ok ? read.value.causes : []
  const body = html`${head('quarantine', reason)}
    ${read.ok ? html`${addedSecretHint(read.value.check)} ${about({ reason, causes, keys: settings, failing: read.value.failing })}` : ''}
    ${bar(console, { query, problem: read.ok ? undefined : read.problem, fields: [{ name: 'webhook_id', label: 'Webhook id', search: true, placeholder: 'the id that the sender gave' }, reasonField(causes)] })}
    ${
      read.ok
        ? html`${count(causes, reason) > 0 ? html`<div class="bulk"><a class="button quiet" href="${linkTo('/parked/verify', { reason })}">Verify ${reason === undefined ? 'all' : 'these'} ${number(count(causes, reason))} again…</a></div>` : ''}
          <div class="card table-card">${quarantineTable(read.value.page, query)}</div> ${pager(path, query, read.value.page.next_cursor)}`
        : ''
    }`
  return { body, status: read.status }
}

function quarantineTable({ data }: Page<QuarantinedEntry>, query: Query): Markup {
  return table({
    label: 'Refused arrivals',
    columns: [
      { head: 'Arrived' },
      { head: 'Webhook id' },
      ...(query['reason'] === undefined ? [{ head: 'Cause' }] : []),
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
  const { db, logger, settings } = console
  const { reason } = query
  const filters = { ...without(query, ...looks, 'cursor'), state: 'parked' }
  const read = await tryRead(logger, async () => {
    const page = await listDeliveries(
      db,
      parseFilters(deliveryListSchema, { ...without(query, ...looks), state: 'parked' }),
    )
    return { page, causes: await readWithin(db, (tx) => readParkedCauses(tx)) }
  })
  const causes = read.ok ? read.value.causes : []
  const body = html`${head('parked', reason)} ${about({ reason, causes, keys: settings })}
    ${bar(console, { query, problem: read.ok ? undefined : read.problem, fields: [{ name: 'q', label: 'Search', search: true, placeholder: 'delivery, request or webhook id, or its beginning' }, reasonField(causes), ...sourceFields(console.keys())] })}
    ${
      read.ok
        ? html`${read.value.page.data.length > 0 ? html`<div class="bulk"><a class="button quiet" data-key-action="replay" href="${linkTo('/deliveries/replay', filters)}">${isOnly(read.value.page, query) ? 'Replay it' : 'Replay all of these'}… <kbd>r</kbd></a></div>` : ''}
          <div class="card table-card">${parkedTable(read.value.page)}</div> ${pager(path, query, read.value.page.next_cursor)}`
        : ''
    }`
  return { body, status: read.status }
}

function isOnly({ data, next_cursor }: Page<DeliveryEntry>, { cursor }: Query): boolean {
  return data.length === 1 && next_cursor === null && cursor === undefined
}

function parkedTable({ data }: Page<DeliveryEntry>): Markup {
  return listTable({
    label: 'Parked deliveries',
    columns: deliveryColumns,
    rows: data.map(deliveryRow),
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
  const words = wordsOf(reason)
  const cause = causes.find((one) => one.reason === reason)
  return card(
    'Meaning and what to do',
    html`<p>${words.means}</p>${errorList(cause?.errors ?? [])}<p><b>What to do:</b> ${todoOf(reason, keys)}</p>${reason === 'no_matching_secret' ? keysExample : ''}
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

function failingFacts(failing: readonly GiveUp[]): Parameters<typeof facts>[0] {
  const named = failing.filter(({ request_key_name: name }) => name !== null)
  const keys = [...new Set(named.map(({ request_key_name: name }) => name))].join(', ')
  const [first] = failing
  const known = [
    'For our own requests',
    html`${number(named.length)}, all of the ${keys.includes(', ') ? 'keys' : 'key'} ${foreign(keys)}`,
  ] as const
  const end = ["Provider's final attempt", html`from ${time(first?.last_attempt_at)} on`] as const
  return [...(named.length === 0 ? [] : [known]), ...(first === undefined ? [] : [end])]
}

/** The errors of Postgres, newest first: one line for each message and model, with the number of deliveries. */
export function errorList(errors: NonNullable<Cause['errors']>): Markup | '' {
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

function reasonField(causes: readonly Cause[]) {
  return { name: 'reason', label: 'Cause', options: causes.map(({ reason }) => reason), wordsOf: titleOfCause }
}

type Bar = { query: Query; problem: string | undefined; fields: Parameters<typeof filterBar>[0]['fields'] }

function bar({ clock }: ConsoleDeps, { query, problem, fields }: Bar): Markup {
  return html`<div class="below-card">${filterBar({ path, query, fields, keep: ['view'], now: clock(), problem })}</div>`
}
