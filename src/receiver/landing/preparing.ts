import type { Notification } from '../../wire/schemas.ts'
import { deliveryIdRange, laneOf } from '../domain/delivery.ts'
import { signedEnvironment, type Environment, type Keys, type SignedEnvironment } from '../domain/keys.ts'
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
export type Identified = {
  deliveryId: string
  claims: number | undefined
  webhookId: string
  keyName: string
  environment: SignedEnvironment | undefined
}

/** What is to be written for a delivery: from the full result where one is needed and to be had, else from the webhook. */
export async function landingOf(
  deps: PreparingDeps,
  delivery: Identified,
  notification: Notification,
): Promise<Landing> {
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
  deps: PreparingDeps,
  delivery: Identified,
  { request_id }: Notification,
  traced?: Traced,
): Promise<Fetched> {
  const { keyName } = delivery
  const environment = environmentOf(deps, delivery)
  return deps.fetch({ requestId: request_id, keyName, environment, purpose: 'landing', traced, signal: deps.cut })
}

/** The full result, where the answer is one. */
export function landingOfAnswer(
  deps: PreparingDeps,
  delivery: Identified,
  { answer, keyName }: Fetched,
): Landing | undefined {
  if (answer.kind !== 'result') return undefined
  const origin = originOf(deps, delivery)
  // The provider answers a key only for requests of the key's own environment.
  const environment = keyName === undefined ? undefined : deps.keys().byName.get(keyName)?.environment
  return landingOfResult(answer.result, { ...origin, environment: environment ?? origin.environment })
}

function originOf(deps: PreparingDeps, delivery: Identified): Origin {
  const { deliveryId, claims, webhookId, keyName } = delivery
  return {
    source: 'webhook',
    keyName,
    environment: environmentOf(deps, delivery),
    delivery: { id: deliveryId, claims, ...deliveryIdRange(webhookId) },
    mediaHosts: deps.mediaHosts,
    now: deps.clock(),
  }
}

/** As stored with the delivery. A row of a release that did not store it is judged by today's keys. */
function environmentOf({ keys }: PreparingDeps, { keyName, environment }: Identified): Environment | undefined {
  const signed = environment ?? signedEnvironment(keys(), keyName)
  return signed === 'unknown' ? undefined : signed
}
