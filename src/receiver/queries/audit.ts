import { z } from 'zod'
import { auditChannels } from '../../platform/pages/tables.ts'
import { getTableColumns } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { audit } from '../domain/on-call-schema.ts'
import { paging, textFilter, times } from './filters.ts'
import { matches, microsOf, readPage, type Order, type Page } from './page.ts'

export const auditEntrySchema = z
  .object({
    id: z.int(),
    at: z.iso.datetime(),
    via: z.enum(auditChannels),
    actor: z.string().describe('The name given at sign-in, or the remote address; user@host for the command line.'),
    action: z.string(),
    target: z.string().nullable(),
    detail: z.record(z.string(), z.unknown()).nullable().describe('Counts, or `error` if the action failed.'),
  })
  .meta({ id: 'AuditEntry' })
export type AuditEntry = z.infer<typeof auditEntrySchema>

export const auditListSchema = z.strictObject({
  via: z.enum(auditChannels).optional(),
  actor: textFilter.optional(),
  action: textFilter.optional(),
  target: textFilter.optional(),
  ...times,
  ...paging,
})

const order: Order = { at: audit.at, id: audit.id }

/** Lists the audit log, newest first. */
export function listAudit(db: Database, query: z.infer<typeof auditListSchema>): Promise<Page<AuditEntry>> {
  const columns = { ...getTableColumns(audit), micros: microsOf(order.at) }
  return readPage(db, query, {
    order,
    matching: matches(audit, query),
    select: (tx, where) => tx.select(columns).from(audit).where(where),
    toItem: (entry) => entry,
  })
}
