import { withDeadline } from '../../runtime/deadline.ts'
import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { type Database } from '../../runtime/postgres/postgres.ts'
import { failureWords } from '../../runtime/postgres/words.ts'
import * as onCall from '../domain/on-call-schema.ts'

const audit = columnsOf(onCall.audit)

export const auditChannels = ['console', 'api', 'cli'] as const

/** What somebody does that changes something here. What services do all day, tracking and submitting, is in its own tables. */
export type AuditedAction = {
  via: (typeof auditChannels)[number]
  /** Who: see actorOf() of the internal listener; user@host on the command line. */
  actor: string
  /** In few words, as one: `replay`, `replay_many`, `verify_quarantine`, `reconcile`, `reconcile_run`, `media_remove`, `subscription_add`. */
  action: string
  /** What it is done to: an id, or filters as a query string. */
  target?: string | undefined
}

export type Detail = Record<string, unknown>

/** Filters as the target of an action: what would stand in the link of the same list. */
export function filtersAsTarget(filters: object): string {
  return new URLSearchParams(Object.fromEntries(Object.entries(filters).map(([name, value]) => [name, String(value)]))).toString()
}

const writeWithinMs = 2000
const maxTextLength = 1000

export async function writeAudit(
  db: Database,
  { via, actor, action, target, detail, at }: AuditedAction & { detail?: Detail | undefined; at: Date },
): Promise<void> {
  await db.execute(sql`
    insert into mediadock.audit (${list(audit, 'at', 'via', 'actor', 'action', 'target', 'detail')})
    values (${at.toISOString()}::timestamptz, ${via}, ${storable(actor)}, ${action}, ${target === undefined ? null : storable(target)},
      ${detail === undefined ? null : JSON.stringify(detail, (_key, value: unknown) => (typeof value === 'string' ? storable(value) : value))}::jsonb)`)
}

export type AuditDeps = { db: Database; clock: () => Date; logger: { error: (fields: object, message: string) => void } }

/**
 * Does the work and writes down that it was done, or that it failed and why.
 * What was done stays done when the audit cannot be written: that goes to the
 * log. `detailOf` answers undefined when there was nothing to do.
 */
export async function audited<T>(
  deps: AuditDeps,
  { detailOf, ...taken }: AuditedAction & { detailOf: (result: T) => Detail | undefined },
  work: () => Promise<T>,
): Promise<T> {
  let result: T
  try {
    result = await work()
  } catch (error) {
    await note(deps, taken, { error: failureWords(error) })
    throw error
  }
  const detail = detailOf(result)
  if (detail) await note(deps, taken, detail)
  return result
}

async function note({ db, clock, logger }: AuditDeps, taken: AuditedAction, detail: Detail): Promise<void> {
  try {
    await withDeadline(writeAudit(db, { ...taken, detail, at: clock() }), writeWithinMs, 'writing the audit')
  } catch (error) {
    logger.error({ err: error, ...taken, detail }, 'an action was taken and could not be written to the audit')
  }
}

/** Postgres stores neither NUL nor lone surrogates. */
function storable(text: string): string {
  return text.replaceAll('\0', '').toWellFormed().slice(0, maxTextLength).toWellFormed()
}
