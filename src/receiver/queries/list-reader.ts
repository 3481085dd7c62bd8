import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { databaseCodeOf, hadToGiveWay, isOutage, one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

/** A list. `asOf` is set for a standby: the time of its last change, by the primary's clock. */
export type Listed<T> = { listed: T; asOf: Date | undefined }

/** Reads a list from the standby if one is configured and answers, otherwise from the primary. */
export type ListReader = <T>(list: (db: Database) => Promise<T>) => Promise<Listed<T>>

/** A standby must answer how current it is within this time, or it is not used. */
const standbyAnswersWithinMs = 1000
/** The pause before a standby that did not answer is tried again. */
const restMs = 10_000

export type ListReaderOptions = { primary: Database; standby: Database | undefined; logger: Logger }

/**
 * Creates the reader for lists, which may be long and need not be current, so the standby (`DATABASE_READ_URL`) can
 * serve them. Actions and their results are read from the primary. A list that exceeds its deadline on the standby is
 * not tried on the primary, where it would be as slow and would delay other work.
 */
export function createListReader({ primary, standby, logger }: ListReaderOptions): ListReader {
  const fromPrimary: ListReader = async (list) => ({ listed: await list(primary), asOf: undefined })
  if (standby === undefined) return fromPrimary
  let [restsUntilMs, knownUntilMs] = [0, 0]
  const giveUp = (why: object) => {
    restsUntilMs = performance.now() + restMs
    logger.warn(
      why,
      `lists come from the primary for ${restMs / 1000} s: the server of DATABASE_READ_URL does not serve them`,
    )
  }
  const isOurs = async () => {
    if (performance.now() < knownUntilMs) return true
    const isSame = await isSameDatabase(primary, standby)
    // How long the identity check of both servers is valid: another server may appear behind the same name.
    if (isSame !== false) knownUntilMs = performance.now() + (isSame ? 60_000 : restMs)
    return isSame !== false
  }
  return async (list) => {
    if (performance.now() < restsUntilMs) return fromPrimary(list)
    try {
      const asOf = await withDeadline(readAsOf(standby), standbyAnswersWithinMs, 'a standby')
      if (asOf !== undefined && (await isOurs())) return { listed: await list(standby), asOf }
      giveUp({
        reason:
          asOf === undefined
            ? 'it is not a standby, or has had no change since its start'
            : 'it follows another database',
      })
    } catch (error) {
      if (!mayGoWellElsewhere(error)) throw error
      giveUp({ err: error })
    }
    return fromPrimary(list)
  }
}

/** Returns the time of the standby's last change; undefined if the server is no standby or has had no change. */
export async function readAsOf(standby: Database): Promise<Date | undefined> {
  const rows = await standby.execute<{ as_of: string | null }>(sql`
    select case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end as as_of`)
  const { as_of: asOf } = one(rows, 'asking a standby for its last change')
  return asOf === null ? undefined : new Date(asOf)
}

/**
 * Returns true if one server is a copy of the other: a standby has the system identifier and the oids of its primary.
 * Undefined if one of them does not answer: during an outage of the primary, the standby's lists are still useful.
 */
export async function isSameDatabase(primary: Database, standby: Database): Promise<boolean | undefined> {
  try {
    const both = Promise.all([readIdentity(primary), readIdentity(standby)])
    const [ours, theirs] = await withDeadline(both, standbyAnswersWithinMs, 'comparing two databases')
    return ours === theirs
  } catch (error) {
    if (mayGoWellElsewhere(error)) return undefined
    throw error
  }
}

async function readIdentity(db: Database): Promise<string> {
  const rows = await db.execute<{ identity: string }>(sql`
    select system_identifier || '/' || (select oid from pg_database where datname = current_database()) as identity
    from pg_control_system()`)
  return one(rows, 'asking a database which one it is').identity
}

/** Errors of one server only: a password or right that differs, or a migration that has not reached the standby yet. */
const ofThatServer = /^(?:28|42)/

function mayGoWellElsewhere(error: unknown): boolean {
  return (
    error instanceof DeadlineError ||
    isOutage(error) ||
    hadToGiveWay(error) ||
    ofThatServer.test(databaseCodeOf(error) ?? '')
  )
}
