import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { DrizzleQueryError } from './drizzle.ts'

/**
 * SQLSTATE classes that speak of the connection (08), the transaction (25, 40),
 * the server's resources, operators, system and files (53, 57, 58, XX, F0). All
 * others speak of what was to be written, also where it was a reader's trigger
 * or a missing grant that refused it.
 */
const aboutTheServer = /^(?:08|25|40|53|57|58|XX|F0)/

/**
 * True where one row of a statement is to blame: Postgres refused the row, or another transaction held it. The others
 * go well without it.
 */
export function isAboutTheRow(error: unknown): boolean {
  const refusal = refusalOf(error)
  // The NOTIFY queue filled up between the guard of the statement and its commit. The next try does not notify.
  return (
    refusal !== undefined &&
    !aboutTheServer.test(refusal.code) &&
    refusal.routine !== 'PreCommit_Notify' &&
    !waitedToCommit(error)
  )
}

/** True where Postgres refused a row and would refuse it again. A row that was only locked goes well later. */
export function isRefusal(error: unknown): boolean {
  return isAboutTheRow(error) && !metALock(error)
}

/** Whether a value, a constraint or a limit refused it: the row itself, whatever triggers and grants there are. */
export function isAboutTheData(error: unknown): boolean {
  return /^(?:22|23|54)/.test(refusalOf(error)?.code ?? '')
}

/**
 * Whether what was read cannot be written out: beyond a limit of Postgres (54), of its memory for one value (XX), a
 * value that it cannot convert (22), or more than JavaScript makes of it. Read without that row, the rest is there.
 */
export function isUnreadable(error: unknown): boolean {
  return (
    error instanceof RangeError || error instanceof SyntaxError || /^(?:22|54|XX)/.test(refusalOf(error)?.code ?? '')
  )
}

/** Whether the statement was the one that had to give way (deadlock, serialization): the same again goes well. */
export function hadToGiveWay(error: unknown): boolean {
  return /^40(?:001|P01)$/.test(refusalOf(error)?.code ?? '')
}

/** Whether a table is not there (undefined_table). */
export function isMissingTable(error: unknown): boolean {
  return refusalOf(error)?.code === '42P01'
}

/** Whether the statement met a row that somebody else's transaction holds (lock_not_available). */
export function metALock(error: unknown): boolean {
  return refusalOf(error)?.code === '55P03'
}

/**
 * Whether a commit waited too long for a lock. All that notify commit one after the other, so a slow disk
 * or a standby that does not answer holds up every one of them, whatever its rows are.
 */
export function waitedToCommit(error: unknown): boolean {
  return metALock(error) && Reflect.get(refusalOf(error) ?? {}, 'at_commit') === true
}

/**
 * What Postgres or the way to it says when nothing is wrong with the statement: 08 connection, 53 resources,
 * 55P03 and 57014 waited too long, 57P shutdown, 25006 read-only, and the codes of sockets, of DNS and of the driver.
 */
const outageCodes =
  /^(?:08...|53...|55P03|57014|57P0.|25006|ECONN\w+|EHOST\w+|ENET\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|CONNECT_TIMEOUT|CONNECTION_\w+|TARGET_SESSION_ATTRS)$/

/** Whether the database could not be reached or could not answer at this moment. */
export function isOutage(error: unknown): boolean {
  if (isNoAnswer(error) || outageCodes.test(databaseCodeOf(error) ?? '')) return true
  const cause = databaseErrorOf(error)
  return cause instanceof AggregateError && cause.errors.some(isOutage)
}

/** Whether the connection itself is gone, with whatever ran on it. */
export function isConnectionLost(error: unknown): boolean {
  return /^(?:CONNECTION_|E[A-Z_]+$|57P0)/.test(databaseCodeOf(error) ?? '')
}

const maxTries = 5
const maxPauseMs = 50

/**
 * Runs one statement that may be the one which has to give way, and then again at
 * once: it was rolled back whole, and whoever was preferred is done in a moment.
 */
export async function untilNotGivingWay<T>(run: () => PromiseLike<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await run()
    } catch (error) {
      if (tries === maxTries || !hadToGiveWay(error)) throw error
      await delay(Math.random() * maxPauseMs * tries)
    }
  }
}

/** Postgres's own message of a failure, without drizzle's own words around it. */
export function postgresMessage(error: unknown): string {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof Error)) return String(cause)
  return cause instanceof postgres.PostgresError ? `${cause.message} (${cause.code})` : cause.message
}

/** An error of a statement; one that ends the session, like a password that is refused, is none. */
function refusalOf(error: unknown): postgres.PostgresError | undefined {
  const cause = databaseErrorOf(error)
  return cause instanceof postgres.PostgresError && !/^(?:FATAL|PANIC)$/.test(cause.severity ?? cause.severity_local)
    ? cause
    : undefined
}

/** The error of Postgres, the driver or the network, without drizzle's own around it, which shows the parameters. */
export function databaseErrorOf(error: unknown): unknown {
  return error instanceof DrizzleQueryError && error.cause !== undefined ? error.cause : error
}

/** The code of that: a SQLSTATE, or one of the driver or the network. */
export function databaseCodeOf(error: unknown): string | undefined {
  const cause = databaseErrorOf(error)
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined
}

/** A statement ended without its answer: what it did is not known. */
export class NoAnswerError extends Error {
  override name = 'NoAnswerError'
  code = 'no_answer' as const
  constructor(what: string) {
    super(`${what}: Postgres gave no answer, so it is not known whether it was done`)
  }
}

/** True when a statement ended without an answer. Postgres may or may not have done its work. */
export function isNoAnswer(error: unknown): boolean {
  return databaseErrorOf(error) instanceof NoAnswerError || databaseCodeOf(error) === 'NO_ANSWER'
}

/**
 * The one row of a statement that always gives one. Where "nothing matched" means
 * something it must be a value in a row: no row at all is an answer that got lost.
 */
export function one<Row>(rows: readonly Row[], what: string): Row {
  const [row] = rows
  if (row === undefined) throw new NoAnswerError(what)
  return row
}

/**
 * Returns the rows of a statement once it is certain that it ran to its end and that none of them was lost. The code
 * that runs statements (postgres.ts, prepared.ts) calls this for each of them.
 */
export function checkAnswer<Rows>(rows: Rows, statement: string): Rows {
  if (!isRowList(rows)) return rows
  // A statement that gives no rows at all counts those that it wrote.
  const givesRows = (rows.columns?.length ?? 0) > 0
  if (!rows.command || (givesRows && typeof rows.count === 'number' && rows.count !== rows.length))
    throw new NoAnswerError(statement.replace(/\s+/g, ' ').trim().slice(0, shownCharacters))
  return rows
}

/** Returns the first words of a statement for a message, without values. */
const shownCharacters = 80

type RowList = { length: number; command: string | null; count: number | null; columns: readonly unknown[] | null }

/** Rows as the driver returns them, as objects or as arrays. */
function isRowList(rows: unknown): rows is RowList {
  return Array.isArray(rows) && 'command' in rows && 'count' in rows
}
