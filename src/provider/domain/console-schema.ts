import { auditTable, sessionsTable } from '../../platform/pages/tables.ts'
import { index } from '../../platform/postgres/drizzle.ts'
import { provider } from './schema.ts'

export const sessions = sessionsTable(provider)

/** Actions of operators. They are few, so the table is never pruned. */
export const audit = auditTable(provider, (table) => [index('audit_target').on(table.target, table.id.desc())])
