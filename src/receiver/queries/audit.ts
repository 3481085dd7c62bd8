import { z } from 'zod'
import { auditChannels } from '../../platform/pages/tables.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { readWithin } from './deadline.ts'
import { paging, textFilter, times, type Paging } from './filters.ts'
import { afterCursor, allOf, isoAlways, limitOf, microsOf, toPage, within, type Order, type Page } from './page.ts'

const a = columnsOf(onCall.audit, 'a')

export const auditEntrySchema = z
  .object({
    id: z.int(),
    at: z.iso.datetime(),
    via: z.enum(auditChannels),
    actor: z
      .string()
      .meta({ description: 'The name given at the sign-in, else the remote address; user@host for the command line.' }),
    action: z.string(),
    target: z.string().nullable(),
    detail: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: 'What came of it, as counts; `error` where it failed.' }),
  })
  .meta({ id: 'AuditEntry' })
export type AuditEntry = z.infer<typeof auditEntrySchema>

const auditFiltersSchema = z.strictObject({
  via: z.enum(auditChannels, `must be one of ${auditChannels.join(', ')}`).optional(),
  actor: textFilter.optional(),
  action: textFilter.optional(),
  target: textFilter.optional(),
  ...times,
})
export type AuditFilters = z.infer<typeof auditFiltersSchema>
export const auditListSchema = auditFiltersSchema.extend(paging)

const order: Order = { at: sql`${a.at}`, id: sql`${a.id}`, idType: 'bigint' }

/** Who did what, newest first. */
export async function listAudit(
  db: Database,
  { limit, cursor, via, actor, action, target, since, until }: AuditFilters & Paging,
): Promise<Page<AuditEntry>> {
  const equal = (column: keyof typeof a, value: string | undefined) =>
    value === undefined ? undefined : sql`${a[column]} = ${value}`
  const chosen = allOf([
    equal('via', via),
    equal('actor', actor),
    equal('action', action),
    equal('target', target),
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  ])
  const rows = await readWithin(db, (tx) =>
    tx.execute<RowOf<typeof onCall.audit, keyof AuditEntry> & { micros: string }>(sql`
      select ${a.id}, ${microsOf(order.at)} as micros, ${list(a, 'at', 'via', 'actor', 'action', 'target', 'detail')} from mediadock.audit a where ${chosen}
      order by ${a.at} desc nulls last, ${a.id} desc nulls last limit ${limitOf({ limit })}`),
  )
  return toPage(rows, { limit }, ({ micros: _micros, ...row }) => ({
    ...row,
    id: Number(row.id),
    at: isoAlways(row.at),
  }))
}
