import { auditTable, sessionsTable } from '../../platform/pages/tables.ts'
import { index } from '../../platform/postgres/drizzle.ts'
import { provider } from './schema.ts'

export const sessions = sessionsTable(provider)

/** Operators write it, at their pace: it is never pruned. */
export const audit = auditTable(provider, (table) => [index('audit_target').on(table.target, table.id.desc())])
