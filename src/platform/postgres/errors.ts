import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { DrizzleQueryError } from './drizzle.ts'

/**
 * SQLSTATE classes about the connection (08), the transaction (25, 40) and the server: its resources (53), operators
 * (57), system (58), configuration (F0) and internal errors (XX). All other classes count as being about the
 * written row, also a refusal by another service's trigger, a missing grant, and a missing table or function.
 */
const aboutTheServer = /^(?:08|25|40|53|57|58|XX|F0)/

/**
 * Why work on rows failed:
 *
 * - `row`: Postgres refuses one of its rows, and would refuse it again. The other rows usually succeed without that
 *   row. A missing grant counts too, although it refuses them all.
 * - `locked`: another transaction has locked one of its rows. It may succeed later.
 * - `server`: the server, the connection, the commit, or an error of this process. No row is known to be at fault.
 */
export type Fault = 'row' | 'locked' | 'server'

export function faultOf(error: unknown): Fault {
  const refusal = refusalOf(error)
  // The NOTIFY queue filled up between the guard of the statement and its commit. The next try does not notify.
  const isOfCommit = refusal?.routine === 'PreCommit_Notify' || waitedToCommit(error)
  if (refusal === undefined || isOfCommit || aboutTheServer.test(refusal.code)) return 'server'
  return metALock(error) ? 'locked' : 'row'
}

/** True if a value (22), a constraint (23) or a limit of Postgres (54) caused the refusal. */
export function isAboutTheData(error: unknown): boolean {
  return /^(?:22|23|54)/.test(refusalOf(error)?.code ?? '')
}

/** True if a row cannot be read: too large for Postgres or JavaScript, or not convertible. */
export function isUnreadable(error: unknown): boolean {
  return (
    error instanceof RangeError || error instanceof SyntaxError || /^(?:22|54|XX)/.test(refusalOf(error)?.code ?? '')
  )
}

/** True if the statement lost a deadlock or a serialization conflict. A retry usually succeeds. */
export function hadToGiveWay(error: unknown): boolean {
  return /^40(?:001|P01)$/.test(refusalOf(error)?.code ?? '')
}

/** True if a table is missing (undefined_table). */
export function isMissingTable(error: unknown): boolean {
  return refusalOf(error)?.code === '42P01'
}

/** True if the statement met a row or a table that another transaction has locked (lock_not_available). */
export function metALock(error: unknown): boolean {
  return refusalOf(error)?.code === '55P03'
}

/**
 * True if a commit waited too long for a lock. Transactions that notify commit one after the other, so a slow disk or a
 * silent standby delays them all. `at_commit` is set by the patched driver (patches/README.md).
 */
export function waitedToCommit(error: unknown): boolean {
  return metALock(error) && Reflect.get(refusalOf(error) ?? {}, 'at_commit') === true
}

/** Connection, resources, waits too long, shutdown, read-only, and the codes of sockets, DNS and the driver. */
const outageCodes = [
  /^(?:08...|53...|55P03|57014|57P0.|25006)$/,
  /^(?:ECONN\w+|EHOST\w+|ENET\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN)$/,
  /^(?:CONNECT_TIMEOUT|CONNECTION_\w+|TARGET_SESSION_ATTRS)$/,
]

/** True if the database could not be reached or could not answer now. */
export function isOutage(error: unknown): boolean {
  const code = databaseCodeOf(error) ?? ''
  if (isNoAnswer(error) || outageCodes.some((codes) => codes.test(code))) return true
  const cause = databaseErrorOf(error)
  return cause instanceof AggregateError && cause.errors.some(isOutage)
}

/** True if the connection was lost, with everything that ran on it. */
export function isConnectionLost(error: unknown): boolean {
  return /^(?:CONNECTION_|E[A-Z_]+$|57P0)/.test(databaseCodeOf(error) ?? '')
}

/** Retries a statement that lost a conflict, up to four times. It was rolled back as a whole. */
export async function retryConflicts<T>(run: () => PromiseLike<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await run()
    } catch (error) {
      if (tries === 5 || !hadToGiveWay(error)) throw error
      await delay(Math.random() * 50 * tries)
    }
  }
}

/** Postgres's own message, without drizzle's text around it, and the constraint, table and function that refused. */
export function postgresMessage(error: unknown): string {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof Error)) return String(cause)
  if (!(cause instanceof postgres.PostgresError)) return cause.message
  // A row of `attempts` keeps 500 characters. A cut message leaves room for the names after it.
  const message = `${cause.message.slice(0, 300).toWellFormed()} (${cause.code})`
  return [message, ...refusedBy(cause)].join(', ')
}

function refusedBy({ schema_name, table_name, constraint_name, where }: postgres.PostgresError): string[] {
  const table = [schema_name, table_name].filter((name) => name !== undefined).join('.')
  const of = table === '' ? '' : ` of ${table}`
  // The last line names the outermost function: that of a trigger. The words around it are in the server's language.
  const [signature] = /[^\s()]+\([^()]*\)(?=\s[^"]*$)/.exec(where?.split('\n').at(-1) ?? '') ?? []
  return [
    ...(constraint_name !== undefined
      ? [`constraint ${constraint_name}${of}`]
      : table === ''
        ? []
        : [`table ${table}`]),
    ...(signature === undefined ? [] : [`function ${signature}`]),
  ]
}

/** The error of a statement. Returns undefined for an error that ends the session, such as a refused password. */
function refusalOf(error: unknown): postgres.PostgresError | undefined {
  const cause = databaseErrorOf(error)
  return cause instanceof postgres.PostgresError && !/^(?:FATAL|PANIC)$/.test(cause.severity ?? cause.severity_local)
    ? cause
    : undefined
}

/** The error of Postgres, the driver or the network, without drizzle's error around it, which contains parameters. */
export function databaseErrorOf(error: unknown): unknown {
  return error instanceof DrizzleQueryError && error.cause !== undefined ? error.cause : error
}

/** The code of the underlying error: a SQLSTATE, or a code of the driver or the network. */
export function databaseCodeOf(error: unknown): string | undefined {
  const cause = databaseErrorOf(error)
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined
}

/** A statement ended without an answer, so its effect is unknown. */
export class NoAnswerError extends Error {
  override name = 'NoAnswerError'
  code = 'no_answer' as const
  constructor(what: string) {
    super(`${what}: Postgres gave no answer, so the effect is unknown`)
  }
}

/** True when a statement ended without an answer. Postgres may or may not have done its work. */
export function isNoAnswer(error: unknown): boolean {
  return databaseErrorOf(error) instanceof NoAnswerError || databaseCodeOf(error) === 'NO_ANSWER'
}

/** Returns the row of a statement that always returns one. A missing row means a lost answer. */
export function one<Row>(rows: readonly Row[], what: string): Row {
  const [row] = rows
  if (row === undefined) throw new NoAnswerError(what)
  return row
}

/** Checks that a statement completed and that no row was lost. Called for every statement. */
export function checkAnswer<Rows>(rows: Rows, statement: string): Rows {
  if (!isRowList(rows)) return rows
  // For a statement that returns no rows, `count` is the number of rows that it wrote.
  const givesRows = (rows.columns?.length ?? 0) > 0
  if (!rows.command || (givesRows && typeof rows.count === 'number' && rows.count !== rows.length))
    // Shows only the first words of the statement, without values.
    throw new NoAnswerError(statement.replace(/\s+/g, ' ').trim().slice(0, 80))
  return rows
}

type RowList = { length: number; command: string | null; count: number | null; columns: readonly unknown[] | null }

function isRowList(rows: unknown): rows is RowList {
  return Array.isArray(rows) && 'command' in rows && 'count' in rows
}
