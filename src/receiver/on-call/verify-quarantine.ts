import { setTimeout as delay } from 'node:timers/promises'
import { and, gt, inArray, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import type { Delivery } from '../domain/delivery.ts'
import type { Keys } from '../domain/keys.ts'
import { admitAgain } from '../intake/admit-again.ts'
import { noteKeyUses } from '../intake/arrival-log.ts'
import { distinct, storeDeliveries } from '../intake/store.ts'
import { equals } from '../queries/page.ts'
import { firstThatFit } from '../queries/quarantine.ts'

const { id } = quarantine

export type VerifyDeps = { db: Database; keys: () => Keys; wake: (role: 'inbox') => void }

export type VerifyOptions = {
  reason?: string | undefined
  /** Called with the accepted deliveries of each page. Those of another page may repeat. */
  onAccepted?: (deliveryIds: readonly string[]) => void
}

export type Verified = { checked: number; accepted: number; refused: number }

/**
 * Verifies the whole quarantine again and accepts authentic arrivals. It uses the present secrets, and judges the age
 * of a signature by the time of arrival. An arrival that was refused because this host's clock was wrong is refused
 * again. An arrival without a usable id is not a delivery, and stays.
 */
export async function verifyQuarantine(
  { db, keys, wake }: VerifyDeps,
  { reason, onAccepted }: VerifyOptions = {},
): Promise<Verified> {
  const verified: Verified = { checked: 0, accepted: 0, refused: 0 }
  let after = 0
  for (;;) {
    const which = and(gt(id, after), equals(quarantine.reason, reason))
    const page = firstThatFit({ which, order: sql`${id}`, rows: 100, bytes: 4 * 1024 * 1024 })
    const rows = await db.select().from(quarantine).where(inArray(id, page)).orderBy(id)
    if (rows.length === 0) return verified
    after = rows.at(-1)?.id ?? after
    const authentic = rows.flatMap((row) => {
      const delivery = admitAgain(row, keys())
      return delivery ? [{ id: row.id, delivery }] : []
    })
    if (authentic.length > 0) {
      const accepted = authentic.map(({ delivery }) => delivery)
      await noteKeyUses(db, accepted)
      const deliveries = distinct(accepted)
      await storeVerified(db, deliveries)
      const ids = authentic.map((row) => row.id)
      await db.delete(quarantine).where(inArray(id, ids))
      wake('inbox')
      onAccepted?.(deliveries.map((delivery) => delivery.id))
    }
    verified.checked += rows.length
    verified.accepted += authentic.length
    verified.refused += rows.length - authentic.length
  }
}

/** Stores authentic deliveries. Tries for 5 s while one is locked, then throws. */
async function storeVerified(db: Database, deliveries: readonly Delivery[]): Promise<void> {
  for (let tries = 1; tries <= 50; tries += 1) {
    const stored = await storeDeliveries(db, deliveries)
    if (![...stored.values()].includes('undecided')) return
    await delay(100)
  }
  throw new Error('another transaction holds deliveries of the quarantine: verify again after it has ended')
}
