import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import type { Parsed, Report, UnreadableReason } from '../domain/report.ts'
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
  try {
    await joinSubmitOf(deps, claimed, parsed.jobId)
    if (parsed.kind === 'report') return parsed.report
    await applyHint(deps, claimed, parsed)
  } catch (error) {
    await putOff(deps, claimed, error)
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

/** Puts off a delivery that Postgres refuses, or parks it after five tries. Throws if Postgres itself failed. */
async function putOff(deps: LandingDeps, claimed: Claimed, error: unknown): Promise<void> {
  const { db, time, logger } = deps
  const fault = faultOf(error)
  if (fault === 'server') throw error
  logger.error({ err: error, delivery_id: claimed.deliveryId }, 'a claimed delivery is put off')
  if (fault === 'locked') {
    const pauseMs = returnPauseMs(claimed.claims)
    await returnClaims(db, [{ ...claimed, pauseMs }], { now: time(), trouble: 'a lock of another transaction' })
  } else {
    const failure = { claimed, reason: 'landing_failed' as const, detail: postgresMessage(error), now: time() }
    await writeOrExpire(deps, claimed, retryOrPark(db, failure))
  }
}
