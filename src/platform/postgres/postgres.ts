import postgres from 'postgres'
import { PgDatabase, PgDialect, type PostgresJsQueryResultHKT, PostgresJsSession } from './drizzle.ts'
import { checkAnswer, databaseErrorOf, isConnectionLost } from './errors.ts'
import { parsePostgresUrl } from './url.ts'

export type Database = PgDatabase<PostgresJsQueryResultHKT>

/** Where reads run: a pool, or a transaction on one of its connections. */
export type Executor = Pick<Database, 'execute' | 'select' | 'selectDistinct'>

export type Pool = {
  db: Database
  client: postgres.Sql
  close: () => Promise<void>
}

export type PoolOptions = {
  url: string
  max: number
  /** Seconds without a byte of answer after which a connection is cut. */
  silenceSeconds?: number
  /** Seconds after which the server cancels a statement, so that it does not run on without a client. */
  statementSeconds?: number
  /** For a few statements that run very often and look up rows only by an index. */
  keepsPlans?: boolean
}

/** Options that the driver's types lack. `patches/` implements the last two. */
type DriverOptions = postgres.Options<Record<string, postgres.PostgresType>> & {
  max_pipeline: number
  silence_timeout: number
  optional_parameters: Record<string, string>
}

/** The version of the patch that this code needs. It is applied at install (see `patches/`). */
const driverPatch = 'mediadock-2'

/**
 * Creates a pool over postgres.js.
 *
 * - Named statements may fail behind PgBouncer in transaction mode, so only prepared.ts requests them.
 * - `max_pipeline: 0`: a statement waits for a free connection, never behind a slow statement.
 * - Two deadlines: a silent connection is cut, so a frozen server blocks no caller. The server cancels long statements,
 *   so statements of cut connections do not occupy its connections.
 * - No JIT: the planner cannot know how small a batch is, and compiling takes longer than running.
 * - Warnings are enabled, because one of them reports a commit that did not wait for its standby. The patched driver
 *   makes it an error of the statement. Other notices are dropped.
 * - No plan is kept, because a plan made for small tables would be used for large ones. `keepsPlans` is for statements
 *   whose planning takes longer than running. It turns off sequential scans, so the age of a plan does not matter.
 *
 * A pooler may drop these settings and the server's deadline. ops/roles.sql sets JIT for the role. Behind a pooler,
 * nothing is prepared.
 */
export function createPool(wanted: PoolOptions): Pool {
  const { url, max, silenceSeconds = 15, statementSeconds = 30, keepsPlans = false } = wanted
  if (Reflect.get(postgres, 'patched') !== driverPatch) {
    throw new Error(
      'the PostgreSQL driver was installed without its patch. Run npx patch-package. ' +
        'npm ci runs it unless scripts are disabled.',
    )
  }
  const address = parsePostgresUrl(url)
  const options: DriverOptions = {
    max,
    ssl: address.ssl,
    prepare: true,
    max_pipeline: 0,
    connect_timeout: 5,
    // Retry soon. The driver's default pause grows to 20 s.
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
  const asItIs = (value: unknown) => value
  for (const type of dates) client.options.parsers[type] = asItIs
  for (const type of [...dates, ...json]) client.options.serializers[type] = asItIs
  return {
    db: Object.assign(databaseOver(client), { $client: client }),
    client,
    close: () => client.end({ timeout: 5 }),
  }
}

/** Returns the driver's client of a database created by createPool. */
export function clientOf(db: Database): postgres.Sql {
  if (!hasClient(db)) throw new TypeError('this database was not created by createPool')
  return db.$client
}

function hasClient(db: Database): db is Database & { $client: postgres.Sql } {
  return '$client' in db
}

const dialect = new PgDialect()

/**
 * Runs statements on a reserved connection, since `begin` of postgres.js needs pipelining, and rolls back what they
 * left open. `before` runs before each statement and may throw.
 */
export async function onOneConnection<T>(
  db: Database,
  work: (alone: Database) => Promise<T>,
  before?: () => void,
): Promise<T> {
  const connection = await clientOf(db).reserve()
  let usable = true
  try {
    return await work(databaseOver(connection, { before }))
  } catch (error) {
    // postgres.js returns a lost connection to the pool itself.
    usable = !isConnectionLost(error)
    throw databaseErrorOf(error)
  } finally {
    // A connection that is lost meanwhile is rolled back and already in the pool.
    if (usable)
      await connection.unsafe('rollback').then(
        () => connection.release(),
        () => {},
      )
  }
}

/**
 * Creates a database on a pool, or on one connection until its release. Like `drizzle()`, which would load a copy of
 * the driver without our patch, but checks each answer. `before` runs before each statement and may throw. With
 * `prepare`, Postgres keeps each statement.
 */
export function databaseOver(
  client: postgres.Sql | postgres.ReservedSql,
  { before, prepare = false }: { before?: (() => void) | undefined; prepare?: boolean } = {},
): Database {
  const unsafe: Unsafe = (text, params) => {
    before?.()
    const query = client.unsafe(text, params, { prepare })
    const check = <Rows>(rows: Rows) => checkAnswer(rows, text)
    // drizzle reads rows as objects for raw SQL, and as arrays for its builder.
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

/** Dates and times, alone and in arrays, and JSON. drizzle's columns convert them, but the driver parses JSON. */
const dates = [1184, 1082, 1083, 1114, 1182, 1185, 1115, 1231]
const json = [114, 3802]
