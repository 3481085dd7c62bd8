import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { time } from '../../../platform/pages/parts.ts'
import type { Keys } from '../../domain/keys.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { wordsOf } from '../../on-call/cause-words.ts'
import type { DeliveryDetail } from '../../queries/delivery-detail.ts'
import type { RequestDetail } from '../../queries/request-detail.ts'
import { badge, foreign, meaningOf, number } from '../parts/parts.ts'

/** The state of a delivery and the next step, in a few sentences. */
export function nextStep(delivery: DeliveryDetail, request: RequestDetail | undefined, keys: Keys): Markup {
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

/** The checks of the source, with their results for this delivery. The signature itself is not stored. */
export function verificationSteps(
  { verification, source_name, body_sha256, bytes, id, received_at, arrival_log }: DeliveryDetail,
  keys: Keys,
): Markup[] {
  const { key_name, t, skew_seconds, window_seconds } = verification
  const late = skew_seconds >= 0
  const isDefault = source_name === defaultSourceName
  const refused = arrival_log.filter(({ outcome }) => outcome === 'refused')
  // A delivery from the quarantine has the time at which it was refused.
  const verifiedAgain = refused.some(({ arrived_at }) => arrived_at <= received_at)
  const refusedLater = refused.some(({ arrived_at }) => arrived_at > received_at)
  return [
    ...(isDefault
      ? [
          html`X-Service-Signature was sent once, with one timestamp, <span class="mono">t=${t}</span>, which is ${time(new Date(t * 1000))}, and between one and eight signatures.`,
          html`HMAC-SHA256 over <span class="mono">${t}.</span> and the ${number(bytes)} raw bytes was made with each secret and compared in constant time. ${triedKeys(key_name, keys)}`,
        ]
      : [html`The signature was verified by the rules of the source <b>${foreign(source_name)}</b>.`]),
    matched(key_name, keys),
    html`Our clock minus the signed time was <b>${number(skew_seconds, { unit: 's' })}</b> at ${time(received_at, 'clock')}: the sender signed ${late ? `${number(skew_seconds)} s before` : `${number(-skew_seconds)} s after`} it arrived here,
      within the window of ±${window_seconds} s with ${number(window_seconds - Math.abs(skew_seconds))} s to spare.`,
    html`Webhook id and body (SHA-256 <span class="mono">${body_sha256.slice(0, 12)}…</span>) make it delivery <span class="mono">${id.slice(0, 8)}</span>. The same id with the same body again is a duplicate.`,
    verifiedAgain &&
      html`It was refused on arrival, and accepted when the quarantine was verified again. The window is checked against its arrival.`,
    refusedLater && html`A later copy was refused; see its arrivals below. That does not change this delivery.`,
  ].filter((step) => step !== false)
}

function triedKeys(matching: string, { all }: Keys): Markup {
  return html`Configured today: ${all.map(({ name, retired }) => html`${badge(name, name === matching ? 'good' : '')}${retired ? html` <span class="soft">retired</span>` : ''} `)}`
}

function matched(name: string, { byName }: Keys): Markup {
  const key = byName.get(name)
  const today =
    key === undefined
      ? html`It is no longer configured, so the same bytes would be refused today.`
      : key.retired
        ? html`It is retired: it verifies webhooks, but makes no calls.`
        : html`Its environment is ${key.environment ?? 'unknown'}.`
  return html`The secret of key <b>${foreign(name)}</b> matched. ${today}`
}
