import {
  bigserial,
  type ExtraConfigColumn,
  type IndexBuilder,
  instant,
  jsonb,
  type PgSchema,
  text,
} from '../postgres/drizzle.ts'

// Tables that both programs have, each in its own schema.

/** Sessions of browsers. The id is the HMAC of the cookie under the console's token; see sessions.ts. */
export function sessionsTable(schema: PgSchema) {
  return schema.table('sessions', { id: text().primaryKey(), name: text().notNull(), expires_at: instant().notNull() })
}
export type SessionsTable = ReturnType<typeof sessionsTable>

export const auditChannels = ['console', 'api', 'cli'] as const

type AuditIndexes = (table: Record<'id' | 'at' | 'target', ExtraConfigColumn>) => IndexBuilder[]

/** Actions of persons in the console, the API and the command line. */
export function auditTable(schema: PgSchema, indexes: AuditIndexes) {
  const columns = {
    id: bigserial({ mode: 'number' }).primaryKey(),
    at: instant().notNull(),
    via: text({ enum: auditChannels }).notNull(),
    /** The name given at the sign-in, else the remote address; user@host for the command line. */
    actor: text().notNull(),
    action: text().notNull(),
    target: text(),
    detail: jsonb().$type<Record<string, unknown>>(),
  }
  return schema.table('audit', columns, indexes)
}
export type AuditTable = ReturnType<typeof auditTable>
