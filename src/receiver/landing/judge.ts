import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { fromSandbox } from '../domain/environment.ts'
import type { Keys } from '../domain/keys.ts'
import type { ReportToLand } from './report-to-land.ts'
import { verdictOn, type RequestRow, type Ruling, type Verdict } from './rules.ts'

/**
 * A report with its verdict: a row of `judged` in the landing statements, which write it if the row of the request still
 * has this version. `cost` is that of the verdict. `was_…`: the row that was judged.
 */
export type JudgedReport = Omit<ReportToLand, 'cost'> &
  Omit<Verdict, 'ruling'> & {
    ruling: Ruling
    /** The version (xmin) of the row that was judged. Null if there was no row. */
    version: string | null
    was_landed: boolean
    was_status: string | null
    was_complete: boolean
    was_confirmed: boolean
  }

/** `now`: the time that replicas share (time.ts). `waitMs`: how long to wait for a locked row. */
export type WriteAt = { now: SQL; waitMs?: number | undefined }
export type LandingAt = WriteAt & { keys: () => Keys }

/** Reads the rows of the requests, and judges each report by its row. */
export async function judge(db: Database, reports: readonly ReportToLand[], at: LandingAt): Promise<JudgedReport[]> {
  if (reports.length === 0) return []
  const rows = await readRows(db, reports, at)
  const keys = at.keys()
  return reports.map((report) => {
    const row = rows.get(report.request_id)
    return {
      ...report,
      ...verdictOn(report, row, keys),
      version: row?.version ?? null,
      was_landed: row?.has_landed ?? false,
      was_status: row?.status ?? null,
      was_complete: row?.media_complete ?? false,
      was_confirmed: row?.is_confirmed ?? false,
    }
  })
}

type Stored = Omit<RequestRow, 'request_environment' | 'result_environment'> & {
  request_id: string
  sandbox: boolean | null
  signed_sandbox: boolean | null
}

async function readRows(
  db: Database,
  reports: readonly ReportToLand[],
  { now }: WriteAt,
): Promise<Map<string, RequestRow>> {
  const requestIds = sql.param(reports.map((report) => report.request_id))
  const rows = await executePrepared<Stored>(
    db,
    sql`
    select request_id, xmin::text as version, source_name, status, landed_at is not null as has_landed,
      media_complete, confirmed_at is not null as is_confirmed, key_name, key_source, sandbox, signed_sandbox, source as ended_by, cost,
      next_poll_at, coalesce(next_poll_at <= ${now}, false) as is_poll_due
    from mediadock.requests r where request_id = any(${requestIds}::uuid[])`,
  )
  return new Map(
    rows.map(({ request_id: requestId, sandbox, signed_sandbox: signedSandbox, ...row }) => [
      requestId,
      { ...row, request_environment: fromSandbox(sandbox), result_environment: fromSandbox(signedSandbox) },
    ]),
  )
}
