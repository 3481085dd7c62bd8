import { createAudit } from '../../platform/pages/audit.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { iso } from '../accounts/keys.ts'
import { audit } from '../domain/audit-schema.ts'

/** The provider's audit: keys, credits, models, faults, cancels, and what is sent or run from the console. */
export const { audited } = createAudit(audit)

const a = columnsOf(audit, 'a')

export type AuditRow = RowOf<typeof audit, 'id' | 'at' | 'via' | 'actor' | 'action' | 'target' | 'detail'>

/** Newest first; `before` is the last id of the page before, `target` the account, key, request or model it was done to. */
export async function listAudit(
  db: Database,
  { target, before, limit }: { target?: string | undefined; before?: number | undefined; limit: number },
): Promise<AuditRow[]> {
  const rows = await db.execute<AuditRow>(sql`
    select ${list(a, 'id', 'at', 'via', 'actor', 'action', 'target', 'detail')} from provider.audit a
    where (${target ?? null}::text is null or ${a.target} = ${target ?? null}) and (${before ?? null}::bigint is null or ${a.id} < ${before ?? null}::bigint)
    order by ${a.id} desc limit ${limit}::int`)
  return rows.map((row) => ({ ...row, at: iso(row.at) }))
}
