import { createAudit } from '../../platform/pages/audit.ts'
import { and, desc, eq, lt } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { audit } from '../domain/console-schema.ts'

/** The provider's audit: changes of keys, credits, models and faults, cancels, and actions of the console. */
export const audited = createAudit(audit)

export type AuditRow = typeof audit.$inferSelect

type AuditFilters = { target?: string | undefined; before?: number | undefined; limit: number }

/**
 * Lists entries, newest first. `before` is the last id of the previous page. `target` is the affected account, key,
 * request or model.
 */
export async function listAudit(db: Database, { target, before, limit }: AuditFilters): Promise<AuditRow[]> {
  const ofTarget = target === undefined ? undefined : eq(audit.target, target)
  const older = before === undefined ? undefined : lt(audit.id, before)
  return db.select().from(audit).where(and(ofTarget, older)).orderBy(desc(audit.id)).limit(limit)
}
