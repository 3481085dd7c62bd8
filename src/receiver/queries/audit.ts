import { z } from 'zod'
import { auditChannels } from '../../platform/pages/tables.ts'
import { and, getTableColumns } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { audit } from '../domain/on-call-schema.ts'
import { readWithin } from './deadline.ts'
import { paging, textFilter, times, type Paging } from './filters.ts'
import { afterCursor, equals, limitOf, microsOf, newestFirst, toPage, within, type Order, type Page } from './page.ts'

export const auditEntrySchema = z
  .object({
    id: z.int(),
    at: z.iso.datetime(),
    via: z.enum(auditChannels),
    actor: z
      .string()
      .meta({ description: 'The name given at sign-in, or the remote address; user@host for the command line.' }),
    action: z.string(),
    target: z.string().nullable(),
    detail: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: 'The outcome, as counts; `error` if the action failed.' }),
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

const order: Order = { at: audit.at, id: audit.id }

/** Lists the audit log, newest first. */
export async function listAudit(
  db: Database,
  { limit, cursor, via, actor, action, target, since, until }: AuditFilters & Paging,
): Promise<Page<AuditEntry>> {
  const chosen = and(
    equals(audit.via, via),
    equals(audit.actor, actor),
    equals(audit.action, action),
    equals(audit.target, target),
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  )
  const rows = await readWithin(db, (tx) =>
    tx
      .select({ ...getTableColumns(audit), micros: microsOf(order.at) })
      .from(audit)
      .where(chosen)
      .orderBy(newestFirst(order))
      .limit(limitOf({ limit })),
  )
  return toPage(rows, { limit }, ({ micros: _micros, ...entry }) => entry)
}
