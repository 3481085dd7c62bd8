import type { quarantine } from '../domain/arrivals-schema.ts'
import { deliveryId, toDelivery, type Delivery } from '../domain/delivery.ts'
import { environmentOfKey, sourceOf, type Keys } from '../domain/keys.ts'
import { atOnce, storedName } from '../domain/source.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { redacted } from './request-headers.ts'

/** A refused arrival, as stored in the quarantine. */
export type Quarantined = typeof quarantine.$inferSelect

/**
 * Verifies a quarantined arrival with the present secrets. Returns its delivery; undefined if it is not authentic.
 * admit() of webhook.ts does the same for a request, but judges at the time at which its body was complete. The
 * quarantine has only the time of arrival.
 */
export function admitAgain({ arrived_at, headers, body }: Quarantined, keys: Keys): Delivery | undefined {
  const receivedAt = new Date(arrived_at)
  const source = sourceOf(keys, pathIn(headers).sourceName)
  // Its source was removed from the settings, or its webhooks are unsigned now: those are never stored.
  if (source?.kind.signed !== true) return undefined
  const { kind, secrets } = source
  const arrived = { body, header: (name: string) => (headers[name] === undefined ? [] : [headers[name]]) }
  const identity = kind.identify(arrived)
  if (!identity.ok) return undefined
  const verification = atOnce(kind.verify(arrived, secrets, Math.floor(receivedAt.getTime() / 1000)))
  if (!verification.ok) return undefined
  const kept = { ...headers }
  for (const name of kind.signatureHeaders) if (kept[name] !== undefined) kept[name] = redacted
  const { webhookId } = identity
  const { keyName, timestampSeconds } = verification
  return toDelivery({
    source,
    id: deliveryId(webhookId, body, storedName(source)),
    webhookId,
    body,
    headers: kept,
    receivedAt,
    environment: environmentOfKey(keys, keyName),
    keyName,
    timestampSeconds,
  })
}
