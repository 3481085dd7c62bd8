import { bigserial, index, jsonb, text } from '../../platform/postgres/drizzle.ts'
import { instant, provider } from './schema.ts'

/** Who did what from the developer console and the command line. Operators write it, at their pace: it is never pruned. */
export const audit = provider.table(
  'audit',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    at: instant('at').notNull(),
    via: text('via', { enum: ['console', 'cli'] }).notNull(),
    /** The name given at the sign-in, else the remote address; user@host for the command line. */
    actor: text('actor').notNull(),
    action: text('action').notNull(),
    target: text('target'),
    detail: jsonb('detail').$type<Record<string, unknown>>(),
  },
  (table) => [index('audit_target').on(table.target, table.id.desc())],
)
