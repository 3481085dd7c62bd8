import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { maxParkedForRequest } from '../domain/delivery.ts'
import { toSandbox } from '../domain/environment.ts'
import { outputOfItem } from '../domain/report.ts'
import type { JudgedReport } from './judge.ts'
import type { Ruling } from './rules.ts'

/*
 * The rulings that need more than the row of the request. That of a mismatch is refined by its delivery. A result of the
 * provider for a request that has landed is compared with the result that readers have.
 */

export type Mismatch = 'key_mismatch' | 'source_mismatch'

/** The delivery of a mismatch. */
export type MismatchedDelivery = {
  /** An earlier try, or the landing of the confirmed result, has flagged it for its key. */
  is_flagged: boolean
  /** A replay of many has put it back into the inbox. */
  is_replayed: boolean
  /** How many others of its request are parked for the same reason, counted up to `maxParkedForRequest`. */
  parked_others: number
}

/**
 * The result that the view `results` shows. Postgres compares its output, which may be large, and its cost, which has
 * more digits than a number.
 */
export type ShownResult = {
  key_name: string | null
  sandbox: boolean | null
  has_same_cost: boolean
  has_same_output: boolean
}

/**
 * Returns the reports with their final rulings. The version of an unconfirmed row guards those too, since a landing that
 * flags gives it a new one. Nothing guards the count of parked deliveries: two replicas may park one too many.
 */
export async function refineRulings(db: Database, judged: readonly JudgedReport[]): Promise<JudgedReport[]> {
  const deliveries = await mismatchedDeliveries(db, judged)
  const results = await shownResults(db, judged)
  return judged.map((report) => {
    const { ruling } = report
    const delivery = deliveries.get(report.request_id)
    if (delivery && isMismatch(ruling)) return { ...report, ruling: rulingOnMismatch(ruling, report, delivery) }
    const shown = results.get(report.request_id)
    return shown && agrees(report, shown) ? { ...report, ruling: 'agreed' } : report
  })
}

function isMismatch(ruling: Ruling): ruling is Mismatch {
  return ruling === 'key_mismatch' || ruling === 'source_mismatch'
}

export function rulingOnMismatch(
  ruling: Mismatch,
  { via, was_confirmed: isConfirmed }: Pick<JudgedReport, 'via' | 'was_confirmed'>,
  delivery: MismatchedDelivery,
): Ruling {
  // No webhook changes a confirmed result, and the delivery has its flag already, so nothing is left to do.
  if (ruling === 'key_mismatch' && isConfirmed && delivery.is_flagged) return 'no_effect'
  // One secret and one request id must not fill the disk. A delivery that is replayed stays.
  const isReplayed = via === 'replay' || delivery.is_replayed
  return !isReplayed && delivery.parked_others >= maxParkedForRequest ? 'discarded' : ruling
}

/** Returns true for a result of the provider that has the end and the environment of a complete result in the row. */
export function mayAgree(report: JudgedReport): boolean {
  const isSameEnd = report.was_landed && report.was_status === report.status && !report.changes_environment
  return (
    report.via === 'poll' && report.ruling === 'landed' && isSameEnd && report.was_complete && report.media_complete
  )
}

/**
 * Returns true if such a result changes nothing for readers, who have the same cost, the same key and environment, by
 * which they filter, and the same output, which has the media. The provider's words for an error, its times and the name
 * of the model are no change for readers. A new column of the view must be decided about here and in rules.test.ts.
 */
export function agrees(report: JudgedReport, shown: ShownResult): boolean {
  return (
    shown.has_same_cost &&
    shown.has_same_output &&
    shown.key_name === report.key_name &&
    shown.sandbox === toSandbox(report.request_environment ?? report.result_environment)
  )
}

const parkedLimit = sql.raw(String(maxParkedForRequest))

/** SQL: how many other deliveries of the request are parked for this reason, counted up to the limit. */
export const parkedOthers = (requestId: SQL, reason: SQL, deliveryId: SQL): SQL => sql`(
            select count(*)::int from (
              select from mediadock.deliveries d
              where d.request_id = ${requestId} and d.parked_reason = ${reason} and d.id <> ${deliveryId}
              limit ${parkedLimit}) as parked)`

/** Reads the deliveries of mismatches. Returns them by request. */
async function mismatchedDeliveries(
  db: Database,
  judged: readonly JudgedReport[],
): Promise<Map<string, MismatchedDelivery>> {
  const mismatches = judged.filter(({ ruling, delivery_id: id }) => isMismatch(ruling) && id !== undefined)
  if (mismatches.length === 0) return new Map()
  const given = mismatches.map(({ request_id, delivery_id, ruling }) => ({ request_id, delivery_id, ruling }))
  const rows = await db.execute<MismatchedDelivery & { request_id: string }>(sql`
    select given.request_id, coalesce('key_mismatch' = any(d.flags), false) as is_flagged,
      (select i.replay_id from mediadock.inbox i where i.delivery_id = given.delivery_id limit 1) is not null
        as is_replayed,
      ${parkedOthers(sql`given.request_id`, sql`given.ruling`, sql`given.delivery_id`)} as parked_others
    from jsonb_to_recordset(${JSON.stringify(given)}::jsonb) as given (request_id uuid, delivery_id uuid, ruling text)
      left join lateral (select flags from mediadock.deliveries where id = given.delivery_id limit 1) as d on true`)
  return new Map(rows.map(({ request_id: requestId, ...row }) => [requestId, row]))
}

/** Reads what readers have where the result of a poll would replace it. Returns it by request. */
async function shownResults(db: Database, judged: readonly JudgedReport[]): Promise<Map<string, ShownResult>> {
  const replacing = judged.filter(mayAgree)
  if (replacing.length === 0) return new Map()
  const given = replacing.map(({ request_id, cost, output, media: [item] }) => {
    return { request_id, cost, output: output ?? (item && outputOfItem(item)) }
  })
  const rows = await db.execute<ShownResult & { request_id: string }>(sql`
    select given.request_id, key_name, sandbox,
      shown.cost is not distinct from given.cost as has_same_cost,
      shown.output is not distinct from given.output as has_same_output
    from jsonb_to_recordset(${JSON.stringify(given)}::jsonb) as given (request_id uuid, cost numeric, output jsonb),
      lateral (select * from mediadock.results where request_id = given.request_id limit 1) as shown`)
  return new Map(rows.map(({ request_id: requestId, ...row }) => [requestId, row]))
}
