import postgres from 'postgres'
import { PgDatabase, PgDialect, type PostgresJsQueryResultHKT, PostgresJsSession, type SQL } from './drizzle.ts'
import { checkAnswer } from './errors.ts'
import { parsePostgresUrl } from './url.ts'

export type Database = PgDatabase<PostgresJsQueryResultHKT>

/** What reads: a database, or a read on one connection. */
export type Executor = Pick<Database, 'execute' | 'select' | 'selectDistinct'>

export type Pool = {
  db: Database
  client: postgres.Sql
  close: () => Promise<void>
}

export type PoolOptions = {
  url: string
  max: number
  /** Seconds that a server may leave a statement without one byte of answer. */
  silenceSeconds?: number
  /** Seconds after which the server itself ends a statement, so that none runs on for nobody. */
  statementSeconds?: number
  /** For a few statements that are run over and over, and look up rows by an index alone. */
  keepsPlans?: boolean
}

/** What the driver gets besides the address and the user; see `patches/`, which knows the last three. */
type DriverOptions = postgres.Options<Record<string, postgres.PostgresType>> & {
  max_pipeline: number
  silence_timeout: number
  optional_parameters: Record<string, string>
}

/** Changes to the driver that this code relies on, applied at install (see `patches/`). */
const driverPatch = 'mediadock-2'

/**
 * A pool over postgres.js.
 *
 * - Named statements would break behind PgBouncer in transaction mode: only what asks
 *   for one gets it, where it can (prepared.ts). What drizzle runs does not ask.
 * - `max_pipeline: 0`: a statement waits for a free connection, never behind a slow one.
 * - Two deadlines. A connection on which a statement gets no byte of answer is cut, so that a
 *   frozen server holds nobody; and the server ends a statement that takes too long, so that what
 *   was cut does not run on there and fill its connections.
 * - No JIT: the planner cannot know how small a batch is, and compiling a statement for it takes
 *   longer than running it a hundred times.
 * - Warnings are sent, whatever the database says: one of them tells that a commit did not wait for its standby.
 * - No plan is kept: one made while tables were small, or for one row, would be used for all that come later.
 *   But where planning takes longer than running (`keepsPlans`): there none may be made that reads a whole
 *   table, so it does not matter when it was made.
 *
 * A pooler may refuse to pass on the server's deadline and these settings; ops/roles.sql sets JIT for the role. Nothing is prepared there.
 */
export function createPool({
  url,
  max,
  silenceSeconds = 15,
  statementSeconds = 30,
  keepsPlans = false,
}: PoolOptions): Pool {
  if (Reflect.get(postgres, 'patched') !== driverPatch) {
    throw new Error(
      'the PostgreSQL driver was installed without its patch: run npx patch-package, which npm ci does unless scripts are switched off',
    )
  }
  const address = parsePostgresUrl(url)
  const options: DriverOptions = {
    max,
    ssl: address.ssl,
    prepare: true,
    max_pipeline: 0,
    connect_timeout: 5,
    // Postgres is back as soon as it is back: no pause of up to 20 s, the default.
    backoff: () => 0.1 + Math.random() * 0.4,
    onnotice: () => {},
    connection: { application_name: 'mediadock' },
    silence_timeout: silenceSeconds,
    optional_parameters: {
      statement_timeout: `${statementSeconds * 1000}`,
      idle_in_transaction_session_timeout: `${statementSeconds * 1000}`,
      jit: 'off',
      client_min_messages: 'warning',
      ...(keepsPlans
        ? { plan_cache_mode: 'force_generic_plan', enable_seqscan: 'off' }
        : { plan_cache_mode: 'force_custom_plan' }),
    },
  }
  const client = postgres(address.url, options)
  leaveText(client)
  return {
    db: Object.assign(databaseOver(client), { $client: client }),
    client,
    close: () => client.end({ timeout: 5 }),
  }
}

/** The driver's own client of a database that createPool has made. */
export function clientOf(db: Database): postgres.Sql {
  if (!hasClient(db)) throw new TypeError('this database was not made by createPool')
  return db.$client
}

function hasClient(db: Database): db is Database & { $client: postgres.Sql } {
  return '$client' in db
}

const dialect = new PgDialect()

/** The database on this one connection, until that is released. `before` runs before each statement and may throw. */
export function databaseOn(connection: postgres.ReservedSql, before?: () => void): Database {
  return databaseOver(connection, before)
}

/**
 * The same as drizzle's own `drizzle()`, with the answer of each statement checked. That function would load the
 * driver again: in an installed package a second one without our patch, or none at all.
 */
function databaseOver(client: postgres.Sql | postgres.ReservedSql, before?: () => void): Database {
  const unsafe: Unsafe = (text, params, options) => {
    before?.()
    const query = client.unsafe(text, params, options)
    const check = <Rows>(rows: Rows) => checkAnswer(rows, text)
    // drizzle reads rows as objects where it runs SQL as it is given, and as arrays where its builder maps them.
    // oxlint-disable-next-line unicorn/no-thenable -- drizzle awaits it, or calls values()
    return { then: (done, failed) => query.then(check).then(done, failed), values: () => query.values().then(check) }
  }
  const checked = new Proxy(client, {
    get: (target, name): unknown => (name === 'unsafe' ? unsafe : Reflect.get(target, name)),
  })
  return new PgDatabase(dialect, new PostgresJsSession(checked, dialect, undefined), undefined)
}

type Unsafe = (
  ...given: Parameters<postgres.Sql['unsafe']>
) => PromiseLike<postgres.Row[]> & { values: () => Promise<unknown[][]> }

/** Dates, times and JSON, alone and in arrays: drizzle's columns turn them into text and back, not the driver. */
const dates = [1184, 1082, 1083, 1114, 1182, 1185, 1115, 1231]
const json = [114, 3802]

function leaveText({ options }: postgres.Sql): void {
  const asItIs = (value: unknown) => value
  for (const type of dates) options.parsers[type] = asItIs
  for (const type of [...dates, ...json]) options.serializers[type] = asItIs
}

type Scalar = string | number | boolean | Uint8Array | null

/** A statement as the driver takes it, for what drizzle's own `execute` has no option for. */
export function statementOf(query: SQL): { text: string; params: (Scalar | Scalar[])[] } {
  const { sql: text, params } = dialect.sqlToQuery(query)
  return { text, params: params.map((value) => (Array.isArray(value) ? value.map(toScalar) : toScalar(value))) }
}

function toScalar(value: unknown): Scalar {
  if (
    typeof value === 'string' ||
    typeof value === 'number' ||
    typeof value === 'boolean' ||
    value === null ||
    value instanceof Uint8Array
  )
    return value
  throw new TypeError(`a statement takes no parameter of type ${typeof value}`)
}
