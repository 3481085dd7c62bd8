import type { Amount } from '../../platform/fair-share.ts'
import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import { parseBody } from '../domain/delivery.ts'
import { sourceOf } from '../domain/keys.ts'
import type { Parsed, Report, UnreadableReason } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import { maxBatchRows } from './batches.ts'
import type { Claimed } from './claimed.ts'
import { applyHint } from './hint.ts'
import { claimDeliveries, park, returnClaims, type ClaimedWithBody } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { failDelivery, returnPauseMs, writeOrExpire } from './returning.ts'

/**
 * Claims due deliveries, and adds those that carry a report. The others are ended here: unreadable ones are parked, and
 * hints are applied. A locked delivery is returned to the inbox. So are all that are left when half of the lease is over
 * (`isLeaseHalfOver`).
 */
export async function claimRound(
  deps: LandingDeps,
  room: Amount,
  { add, isLeaseHalfOver }: { add: (row: ClaimedWithBody, report: Report) => void; isLeaseHalfOver: () => boolean },
): Promise<{ more: boolean }> {
  const { db, keys, time, logger } = deps
  const limit = Math.min(maxBatchRows, room.rows)
  const rows = await claimDeliveries(db, { limit, maxBytes: room.bytes, now: time() })
  const others: { row: ClaimedWithBody; parsed: Parsed }[] = []
  for (const row of rows) {
    try {
      const parsed = parseBody(sourceOf(keys(), row.sourceName), row.body)
      if (parsed.kind === 'report' && row.idempotencyKey === undefined) add(row, parsed.report)
      else others.push({ row, parsed })
    } catch (error) {
      // A bug that one body meets, here or in `add`, must not keep the others of each claim from landing.
      logger.error({ err: error, delivery_id: row.deliveryId }, 'internal error: a claimed delivery could not be read')
      const detail = 'internal error: a claimed delivery could not be read (see the log)'
      await failDelivery(deps, row, detail)
    }
  }
  // These need statements before they land, or instead. Nobody renews their leases, as is done for the rows added above.
  for (const [index, { row, parsed }] of others.entries()) {
    // Some may have waited for locks. The rest goes back before its leases expire.
    if (isLeaseHalfOver()) {
      const rest = others.slice(index).map((one) => one.row)
      await returnClaims(db, rest, { now: time() })
      break
    }
    const report = await beforeLanding(deps, row, parsed)
    if (report) add(row, report)
  }
  const bytes = rows.reduce((sum, { body }) => sum + body.length, 0)
  return { more: rows.length === limit || bytes >= room.bytes }
}

/**
 * Handles a claimed delivery that is not simply a report: ends the submit that the URL of its webhook names, applies
 * a hint, and parks what is unreadable. Returns the report, if there is one to land.
 */
async function beforeLanding(deps: LandingDeps, claimed: Claimed, parsed: Parsed): Promise<Report | undefined> {
  if (parsed.kind === 'unreadable') return parkUnreadable(deps, claimed, parsed.reason)
  try {
    await joinSubmitOf(deps, claimed, parsed.jobId)
    if (parsed.kind === 'report') return parsed.report
    await applyHint(deps, claimed, parsed)
  } catch (error) {
    await returnOrFail(deps, claimed, error)
  }
  return undefined
}

/** Ends the submit that the URL of the webhook names, if it names one. */
export async function joinSubmitOf(
  { join }: LandingDeps,
  { idempotencyKey, sourceName }: Pick<Claimed, 'idempotencyKey' | 'sourceName'>,
  jobId: string,
): Promise<void> {
  if (idempotencyKey !== undefined) await join?.({ ...requestIdOf(sourceName, jobId), idempotencyKey, sourceName })
}

async function parkUnreadable(deps: LandingDeps, claimed: Claimed, reason: UnreadableReason): Promise<undefined> {
  const { db, time, logger } = deps
  const detail = reason === 'unknown_source' ? 'the source is not in SOURCES_FILE' : 'not a notification'
  const parking = park(db, { claimed, reason, detail, now: time() })
  if ((await writeOrExpire(deps, claimed, parking)) !== true) return
  logger.info(
    { delivery_id: claimed.deliveryId, webhook_id: claimed.webhookId, outcome: 'parked', reason },
    'delivery parked: it is authentic but not usable, see /parked',
  )
}

/** Returns a delivery that is locked, and puts off one that Postgres refuses. Throws if Postgres itself failed. */
async function returnOrFail(deps: LandingDeps, claimed: Claimed, error: unknown): Promise<void> {
  const { db, time, logger } = deps
  const fault = faultOf(error)
  if (fault === 'server') throw error
  if (fault === 'locked') {
    logger.warn(
      { err: error, delivery_id: claimed.deliveryId },
      'a claimed delivery waits for a lock of another transaction, trying it later',
    )
    const pauseMs = returnPauseMs(claimed.claims)
    await returnClaims(db, [{ ...claimed, pauseMs }], { now: time(), trouble: 'a lock of another transaction' })
  } else {
    logger.error({ err: error, delivery_id: claimed.deliveryId }, 'a claimed delivery could not be landed')
    await failDelivery(deps, claimed, postgresMessage(error))
  }
}
