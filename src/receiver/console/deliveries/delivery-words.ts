import { html } from 'hono/html'
import { type Markup, facts, time } from '../../../platform/pages/parts.ts'
import type { Keys } from '../../domain/keys.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { wordsOf } from '../../on-call/cause-words.ts'
import type { DeliveryDetail } from '../../queries/delivery-detail.ts'
import type { RequestDetail } from '../../queries/request-detail.ts'
import { foreign, meaningOf, number } from '../parts/parts.ts'

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

/** How the signature was verified. The signature itself is not stored. */
export function verificationFacts(
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
