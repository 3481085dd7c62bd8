import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import type { Hint, Parsed, Report, UnreadableReason } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import type { Claimed } from './claimed.ts'
import { applyHint } from './hint.ts'
import { park, returnClaims, retryOrPark } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { returnPauseMs, writeOrExpire } from './returning.ts'

/**
 * Handles a claimed delivery that is not simply a report: ends the submit that the URL of its webhook names, applies
 * a hint, and parks what this version cannot parse. Returns the report, if there is one to land.
 */
export async function beforeLanding(deps: LandingDeps, claimed: Claimed, parsed: Parsed): Promise<Report | undefined> {
  if (parsed.kind === 'unreadable') return parkUnreadable(deps, claimed, parsed.reason)
  await joinSubmitOf(deps, claimed, parsed.jobId)
  return parsed.kind === 'report' ? parsed.report : applyClaimedHint(deps, claimed, parsed)
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

/** Applies a hint. If Postgres refuses, applies it again later, and parks it after five tries. */
async function applyClaimedHint(deps: LandingDeps, claimed: Claimed, hint: Hint): Promise<undefined> {
  const { db, time, logger } = deps
  try {
    await applyHint(deps, claimed, hint)
  } catch (error) {
    const fault = faultOf(error)
    if (fault === 'server') throw error
    logger.error({ err: error, delivery_id: claimed.deliveryId }, 'a hint could not be landed, landing it later')
    if (fault === 'locked') {
      const pauseMs = returnPauseMs(claimed.claims)
      await returnClaims(db, [{ ...claimed, pauseMs }], { now: time(), trouble: 'a lock of another transaction' })
    } else {
      const failure = { claimed, reason: 'landing_failed' as const, detail: postgresMessage(error), now: time() }
      await writeOrExpire(deps, claimed, retryOrPark(db, failure))
    }
  }
}
