import type { Notification } from '../../wire/schemas.ts'
import { deliveryIdRange, laneOf } from '../domain/delivery.ts'
import type { Environment, Keys } from '../domain/keys.ts'
import type { Traced } from '../domain/trace.ts'
import type { Fetched, Fetcher } from '../fetching/fetcher.ts'
import { landingOfNotification, landingOfResult, type Landing, type Origin } from './landing.ts'

export type PreparingDeps = {
  keys: () => Keys
  fetch: Fetcher
  mediaHosts: readonly string[] | undefined
  clock: () => Date
  /** Cuts the calls in flight. */
  cut: AbortSignal
}

/** A delivery by its names; one that nobody claimed, a replay, has no `claims`. */
export type Identified = { deliveryId: string; claims: number | undefined; webhookId: string; keyName: string }

/** What is to be written for a delivery: from the full result where one is needed and to be had, else from the webhook. */
export async function landingOf(deps: PreparingDeps, delivery: Identified, notification: Notification): Promise<Landing> {
  if (laneOf(notification) === 'direct') return landingOfWebhook(deps, delivery, notification)
  const fetched = await fetchFor(deps, delivery, notification)
  return landingOfAnswer(deps, delivery, fetched) ?? landingOfWebhook(deps, delivery, notification)
}

/** What the webhook itself says: all that is known while the full result cannot be had. */
export function landingOfWebhook(deps: PreparingDeps, delivery: Identified, notification: Notification): Landing {
  return landingOfNotification(notification, originOf(deps, delivery))
}

/** Asks the provider for what the webhook left out. A replay is none of its delivery's trace, which ended long ago. */
export function fetchFor(
  { fetch, cut }: PreparingDeps,
  { keyName }: Identified,
  { request_id }: Notification,
  traced?: Traced,
): Promise<Fetched> {
  return fetch({ requestId: request_id, keyName, purpose: 'landing', traced, signal: cut })
}

/** The full result, where the answer is one. */
export function landingOfAnswer(deps: PreparingDeps, delivery: Identified, { answer, keyName }: Fetched): Landing | undefined {
  if (answer.kind !== 'result') return undefined
  const origin = originOf(deps, delivery)
  // A retired key may have signed, whose environment nobody knows; that of the key which knows the result is known.
  return landingOfResult(answer.result, { ...origin, environment: environmentNamed(deps, keyName) ?? origin.environment })
}

function originOf(deps: PreparingDeps, { deliveryId, claims, webhookId, keyName }: Identified): Origin {
  return {
    source: 'webhook',
    keyName,
    environment: environmentNamed(deps, keyName),
    delivery: { id: deliveryId, claims, ...deliveryIdRange(webhookId) },
    mediaHosts: deps.mediaHosts,
    now: deps.clock(),
  }
}

function environmentNamed({ keys }: PreparingDeps, keyName: string | undefined): Environment | undefined {
  return keyName === undefined ? undefined : keys().byName.get(keyName)?.environment
}
