import { Router } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, facts, table, time } from '../../../platform/pages/parts.ts'
import { unknown, uuidParam } from '../../api/operation.ts'
import type { Keys } from '../../domain/keys.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { wordsOf } from '../../on-call/cause-words.ts'
import { findDelivery, type DeliveryDetail } from '../../queries/delivery-detail.ts'
import { readRequest, type RequestDetail } from '../../queries/request-detail.ts'
import { bodyPart, bodyViewOf, headersPart, sendDownload, type BodyView } from '../parts/body-view.ts'
import { listTable } from '../parts/list-view.ts'
import { link, type LinkPolicy } from '../parts/media.ts'
import { badge, card, code, credits, foreign, number, shortId, size, meaningOf } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { arrivalColumns } from './delivery-rows.ts'

export function deliveryRoutes(console: ConsoleDeps): Router {
  const { db, when } = console
  const router = Router()
  router.get('/deliveries/:id', async (req, res) => {
    const delivery = await findDelivery(db, uuidParam(req, 'id'))
    if (!delivery) throw unknown(req)
    const { id, request_id: requestId } = delivery
    const request = requestId === null ? undefined : await readRequest(db, requestId, when())
    const body = deliveryPage(console, { delivery, request, view: bodyViewOf(req) })
    sendConsolePage(console, res, { title: `Delivery ${id.slice(0, 8)}`, body })
  })
  router.get('/deliveries/:id/body', async (req, res) => {
    const delivery = await findDelivery(db, uuidParam(req, 'id'))
    if (!delivery) throw unknown(req)
    sendDownload(res, `${delivery.id}.bin`, Buffer.from(delivery.body_base64, 'base64'))
  })
  return router
}

type Shown = { delivery: DeliveryDetail; request: RequestDetail | undefined; view: BodyView }

function deliveryPage({ keys, links }: ConsoleDeps, { delivery, request, view }: Shown): Markup {
  const { id, state, outcome } = delivery
  return html`<div class="head">
      <h1>Delivery <span class="mono" title="${id}">${id.slice(0, 8)}</span></h1>
      ${badge(state)} ${outcome === state ? '' : badge(outcome)}
      <span class="spacer"></span>
      <a class="button ${state === 'parked' ? '' : 'quiet'}" href="${linkTo('/deliveries/replay', { ids: id })}" data-key-action="replay">Replay… <kbd>r</kbd></a>
    </div>
    <p class="lead">${nextStep(delivery, request, keys())}</p>
    <div class="columns">
      <div>${card('What it is', factsOf(delivery))} ${card('How it was verified', verificationFacts(delivery, keys()))} ${card('Attempts', attemptsTable(delivery))}</div>
      <div>${card('Its request', requestNow(delivery, request, links))} ${card('Headers', headersPart(delivery.headers, 'The signature and credentials are never shown.'))}</div>
    </div>
    ${card('Arrivals', html`<div data-exact>${arrivalsTable(delivery)}</div>`)} ${card('Body', bodyPart(`/deliveries/${id}`, Buffer.from(delivery.body_base64, 'base64'), view))}`
}

function factsOf(delivery: DeliveryDetail): Markup {
  const { id, webhook_id, request_id, status, model, key_name, source_name, flags } = delivery
  const { received_at, bytes, body_sha256, reason, ack_ms, arrivals } = delivery
  return facts([
    ['Received', time(received_at, 'precise')],
    ['Delivery id', html`<span class="mono" data-copy="${id}">${id}</span>`],
    ['Webhook id', html`<span class="mono" data-copy="${webhook_id}">${foreign(webhook_id, 255)}</span>`],
    [
      'Request',
      request_id === null
        ? html`<span class="soft">the delivery names no request</span>`
        : html`<a class="mono" href="/requests/${request_id}" data-copy="${request_id}">${request_id}</a>`,
    ],
    ['Status', status === null ? html`<span class="soft">not readable</span>` : badge(status)],
    reason !== null && ['Parked because', code(reason)],
    flags.length > 0 && ['Flags', html`${flags.map((flag) => html`${badge(flag, 'warn')} `)}`],
    ['Model', foreign(model)],
    ['Key', foreign(key_name)],
    ['Source', foreign(source_name)],
    ['Body', html`${size(bytes)} <span class="soft">SHA-256</span> <span class="mono">${body_sha256}</span>`],
    [
      'Arrived',
      html`${number(arrivals)} ${arrivals === 1 ? 'time' : 'times'}${ack_ms === null ? '' : html`, <span class="soft">first answered in ${number(ack_ms, { decimals: 1, unit: 'ms' })}</span>`}`,
    ],
  ])
}

function attemptsTable({ attempts, state, claims }: DeliveryDetail): Markup {
  return table({
    label: 'Attempts',
    columns: ['At', 'Outcome', 'Error'],
    rows: attempts.map(({ attempted_at, outcome, detail }) => [
      time(attempted_at, 'precise'),
      badge(outcome),
      html`<div class="detail">${foreign(detail, 500)}</div>`,
    ]),
    empty:
      state === 'parked'
        ? 'It was parked on arrival and never processed.'
        : claims > 1
          ? `It was tried ${claims} times, and no attempt has finished yet.`
          : 'It has not been processed yet.',
  })
}

function arrivalsTable({ arrival_log }: DeliveryDetail): Markup {
  return listTable({
    label: 'Arrivals',
    columns: arrivalColumns,
    names: arrivalColumns.flatMap(({ name }) => name ?? []),
    // The top of the page shows that the delivery is parked, and why.
    items: arrival_log.map((arrival) => ({ ...arrival, parked_reason: null })),
    empty: 'The log has no row for this delivery. Rows are written just after the answer, and kept for RETENTION_DAYS.',
  })
}

function requestNow({ request_id }: DeliveryDetail, request: RequestDetail | undefined, links: LinkPolicy): Markup {
  if (request_id === null) return html`<p class="soft">The delivery names no request, so it changed none.</p>`
  if (!request) return html`<p class="soft">No request has this id: the delivery has not landed.</p>`
  const { status, source: way, landed_at, confirmed_at, media, media_complete } = request
  const { cost, error_code, error_message, next_poll_at } = request
  return html`${facts([
    ['Request', shortId('request', request_id)],
    ['Status', badge(status)],
    ['Landed', html`${time(landed_at)} ${way === null ? '' : html`<span class="soft">by ${way}</span>`}`],
    [
      'Confirmed',
      confirmed_at === null ? html`<span class="soft">not yet by the provider's own result</span>` : time(confirmed_at),
    ],
    ['Cost', credits(cost)],
    error_code !== null && [
      'Error',
      html`${foreign(error_code)} <span class="soft">${foreign(error_message, 300)}</span>`,
    ],
    next_poll_at !== null && ['Next poll', time(next_poll_at)],
    ['Media', html`${number(media.length)}${media_complete ? '' : html` <span class="soft">not all known yet</span>`}`],
  ])}
    ${media.length === 0 ? '' : html`<ul class="media-list">${media.map(({ kind, position, url }) => html`<li><span class="soft">${kind} ${position}</span> <span class="link">${link(url, links)}</span></li>`)}</ul>`}`
}

/** The state of a delivery and the next step, in a few sentences. */
function nextStep(delivery: DeliveryDetail, request: RequestDetail | undefined, keys: Keys): Markup {
  const { state, outcome, reason, due_at } = delivery
  switch (state) {
    case 'pending':
      return html`Stored and acknowledged; it waits to be processed${due_at === null ? '' : html`, next at ${time(due_at, 'clock')}`}.
        ${whyWaiting(delivery)}`
    case 'processed':
      return html`Processed: ${meaningOf(outcome) ?? outcome}. ${afterwards[outcome] ?? 'Nothing to do.'}`
    case 'parked': {
      const { title, means, todo } = wordsOf(reason ?? '')
      if (reason === 'key_mismatch' && request)
        return html`<b>Parked: ${title}.</b> ${mismatch(delivery, request, keys)}`
      return html`<b>Parked: ${title}.</b> ${means} ${todo}`
    }
    default:
      return state satisfies never
  }
}

/** Which key is of which environment, and the one action that applies. */
function mismatch({ key_name: signer }: DeliveryDetail, request: RequestDetail, { byName }: Keys): Markup {
  const keyText = (name: string) =>
    html`the key <b>${foreign(name)}</b> (${byName.get(name)?.environment ?? 'unknown environment'})`
  const { id, key_name, sandbox, confirmed_at } = request
  const signed = html`Signed with ${keyText(signer)}.`
  if (confirmed_at !== null)
    return html`${signed} The provider has confirmed the request as ${sandbox === true ? 'sandbox' : 'live'}, and its result stands. Replay this delivery: that closes it without effect.`
  return html`${signed} ${key_name === null ? 'Its request names no key.' : html`Its request has ${keyText(key_name)}.`} The provider's own result decides: press “Ask the provider now” on the page of <a href="/requests/${id}">the request</a>.`
}

/** A delivery that was claimed more than once has failed before, so it never gets "Nothing to do". */
function whyWaiting({ failures, claims, trouble }: DeliveryDetail): Markup | string {
  if (failures > 0)
    return `It failed ${failures} of at most 5 times; see the attempts below. After the fifth failure it is parked.`
  if (trouble !== null)
    return html`<b>It was tried ${claims === 1 ? 'once' : `${number(claims)} times`} and could not be landed:</b> ${foreign(trouble, 500)}. It is retried automatically until that is fixed.`
  if (claims > 1)
    return `It was tried ${claims} times, and no attempt has finished: a receiver may have stopped. It is retried automatically. If the number grows, search the log for its id.`
  return 'Nothing to do.'
}

const afterwards: Record<string, string> = {
  contradiction:
    "A confirmed result stays. For an unconfirmed one, a poll reads the provider's own result, which decides.",
  key_mismatch: 'The provider has confirmed its environment since. Nothing to do.',
  source_mismatch:
    'A request belongs to the source that first tracked or reported it. A replay parks this delivery again.',
}

/** How the signature was verified. The signature itself is not stored. */
function verificationFacts(
  { verification, source_name, received_at, arrival_log }: DeliveryDetail,
  keys: Keys,
): Markup {
  const { key_name, t, skew_seconds, window_seconds } = verification
  const refused = arrival_log.filter(({ outcome }) => outcome === 'refused')
  // A delivery from the quarantine has the time at which it was refused.
  const verifiedAgain = refused.some(({ arrived_at }) => arrived_at <= received_at)
  const refusedLater = refused.some(({ arrived_at }) => arrived_at > received_at)
  return facts([
    source_name !== defaultSourceName && ['Rules', html`those of the source <b>${foreign(source_name)}</b>`],
    ['Secret', html`of the key <b>${foreign(key_name)}</b>. ${keyToday(key_name, keys)}`],
    ['Signed', html`${time(new Date(t * 1000))} <span class="mono soft">t=${t}</span>`],
    ['Our clock minus that', `${number(skew_seconds, { unit: 's' })}, of at most ±${window_seconds}\u00a0s`],
    verifiedAgain && ['First', 'refused on arrival; accepted when the quarantine was verified again'],
    refusedLater && ['Later', 'a copy was refused; see its arrivals below. That does not change this delivery'],
  ])
}

function keyToday(name: string, { byName }: Keys): string {
  const key = byName.get(name)
  if (key === undefined) return 'It is no longer configured, so the same bytes would be refused today.'
  if (key.retired) return 'It is retired: it verifies webhooks, but makes no calls.'
  return `Its environment is ${key.environment ?? 'unknown'}.`
}
