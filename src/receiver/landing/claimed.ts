import type { Delivery } from '../domain/delivery.ts'

/** A delivery that this process has claimed. */
export type Claimed = Pick<Delivery, 'webhookId' | 'sourceName' | 'keyName' | 'environment'> & {
  deliveryId: string
  /** The fence: the claim is held while the row has the same number. */
  claims: number
  /** How many times in a row Postgres refused its landing. A parked one in a replay of many has one try left. */
  failures: number
  /** For the metric of the time from arrival to landing. Undefined for a replay, which it leaves out. */
  receivedAt: Date | undefined
  /** The traceparent, as sent. */
  traceparent?: string | undefined
  /** That of the submit which the URL of the webhook named. */
  idempotencyKey?: string | undefined
}

/** Returns the first claim of a delivery that is about to be stored with it. */
export function firstClaimOf(delivery: Delivery): Claimed {
  const { id, webhookId, sourceName, keyName, environment, receivedAt, headers } = delivery
  const claim = { deliveryId: id, claims: 1, failures: 0 }
  return { ...claim, webhookId, sourceName, keyName, environment, receivedAt, traceparent: headers['traceparent'] }
}
