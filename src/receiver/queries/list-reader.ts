import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { databaseCodeOf, hadToGiveWay, isOutage, one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

/** What was listed; of a standby besides when the last change that it had was made, by the primary's clock. */
export type Listed<T> = { listed: T; asOf: Date | undefined }

/** Reads a list from a standby where one is set and answers, else from the primary. */
export type ListReader = <T>(list: (db: Database) => Promise<T>) => Promise<Listed<T>>

/** It says first how far it is, in a round trip: one that takes longer answers nothing. */
const standbyAnswersWithinMs = 1000
/** So long nothing is asked of one that did not answer. */
const restMs = 10_000
/** And so long it is taken for the one that it was: either server may be another one behind the same name. */
const knownMs = 60_000

export type ListReaderOptions = { primary: Database; standby: Database | undefined; logger: Logger }

/**
 * Lists may be long, and whoever looks through them can bear a second of delay: they are for a standby
 * (`DATABASE_READ_URL`). What acts, and what is shown of an action, is read where it was written. A list
 * that runs into its deadline there is not tried again here, where it would be as slow and in the way.
 */
export function createListReader({ primary, standby, logger }: ListReaderOptions): ListReader {
  const fromPrimary: ListReader = async (list) => ({ listed: await list(primary), asOf: undefined })
  if (standby === undefined) return fromPrimary
  let [restsUntilMs, knownUntilMs] = [0, 0]
  const giveUp = (why: object) => {
    restsUntilMs = performance.now() + restMs
    logger.warn(
      why,
      `lists are read from the primary for ${restMs / 1000} s: the server of DATABASE_READ_URL does not serve them`,
    )
  }
  const isOurs = async () => {
    if (performance.now() < knownUntilMs) return true
    const isSame = await isSameDatabase(primary, standby)
    if (isSame !== false) knownUntilMs = performance.now() + (isSame ? knownMs : restMs)
    return isSame !== false
  }
  return async (list) => {
    if (performance.now() < restsUntilMs) return fromPrimary(list)
    try {
      const asOf = await withDeadline(readAsOf(standby), standbyAnswersWithinMs, 'a standby')
      if (asOf !== undefined && (await isOurs())) return { listed: await list(standby), asOf }
      giveUp({
        reason:
          asOf === undefined ? 'it is no standby, or has had no change since its start' : 'it follows another database',
      })
    } catch (error) {
      if (!mayGoWellElsewhere(error)) throw error
      giveUp({ err: error })
    }
    return fromPrimary(list)
  }
}

/** Returns when the last change was made that a standby has; undefined where the server is no standby, or has had none. */
export async function readAsOf(standby: Database): Promise<Date | undefined> {
  const rows = await standby.execute<{ as_of: string | null }>(sql`
    select case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end as as_of`)
  const { as_of: asOf } = one(rows, 'asking a standby how far it is')
  return asOf === null ? undefined : new Date(asOf)
}

/**
 * Whether one is a copy of the other: a standby has the system identifier and
 * the oids of the server that it follows. Undefined where one of them does not
 * say it: the primary may be away, and the lists of its standby be all there is.
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

/** A password or a right that only the primary knows; a migration that has not reached the standby yet. */
const ofThatServer = /^(?:28|42)/

function mayGoWellElsewhere(error: unknown): boolean {
  return (
    error instanceof DeadlineError ||
    isOutage(error) ||
    hadToGiveWay(error) ||
    ofThatServer.test(databaseCodeOf(error) ?? '')
  )
}
