import { withDeadline } from '../deadline.ts'
import type { Database } from '../postgres/postgres.ts'
import { failureWords } from '../postgres/words.ts'
import { storableText } from '../storable-text.ts'
import type { auditChannels, AuditTable } from './tables.ts'

export type Actor = {
  via: (typeof auditChannels)[number]
  /** See actorOf() of access.ts; user@host on the command line. */
  actor: string
}

/** An action of a person that changes something. Calls of services are recorded in other tables. */
export type AuditedAction = Actor & {
  /** A short code: `replay`, `key_revoke`. */
  action: string
  /** The target: an id, a name, or filters as a query string. */
  target?: string | undefined
}

export type Detail = Record<string, unknown>

export type AuditDeps = {
  db: Database
  clock: () => Date
  logger: { error: (fields: object, message: string) => void }
}

/** The audit of one program, in its table. */
export function createAudit(table: AuditTable) {
  async function note({ db, clock, logger }: AuditDeps, taken: AuditedAction, detail: Detail): Promise<void> {
    const { via, actor, action, target } = taken
    try {
      const entry = {
        at: clock().toISOString(),
        via,
        actor: storableText(actor),
        action,
        // Short enough for its index.
        target: target === undefined ? null : storableText(target.slice(0, 1000)),
        detail: JSON.parse(
          JSON.stringify(detail, (_key, value: unknown) => (typeof value === 'string' ? storableText(value) : value)),
        ),
      }
      await withDeadline(db.insert(table).values(entry), 2000, 'writing the audit')
    } catch (error) {
      const message = 'an entry of the audit could not be written: the action itself is not affected'
      logger.error({ err: error, ...taken, detail }, message)
    }
  }

  /**
   * Does the work and records its success or its error. If the audit cannot be written, the work still stands and the
   * failure is logged. `detailOf` returns undefined when there was nothing to do.
   */
  return async function audited<T>(
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
}
