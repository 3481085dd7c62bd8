import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { withDeadline } from '../deadline.ts'
import { readMigrationFiles } from './drizzle.ts'
import { hadToGiveWay, metALock } from './errors.ts'
import { buildIndex, indexesAfter, missingIndexes, withoutLargeIndexes } from './large-indexes.ts'
import { parsePostgresUrl } from './url.ts'

export type Migrations = { url: string; schema: string; folder: string }

export type LockWait = {
  lockWaitMs?: number
  /** Called with the reason at each try that met a lock, after the first second. */
  onWait?: (words: string) => void
  signal?: AbortSignal
}

type Migration = ReturnType<typeof readMigrationFiles>[number]

/** The schema was created by migrations that this version does not have. */
export class OtherHistoryError extends Error {
  override name = 'OtherHistoryError'
  code = 'other_history' as const
}

/** Applies the new migrations of one schema and returns their number. Also creates the indexes of large tables. */
export async function migrate(schema: Migrations, wait: LockWait = {}): Promise<number> {
  const applied = await applyMigrations(schema, wait)
  await createLargeIndexes(schema, wait)
  return applied
}

/**
 * Applies the new migrations of one schema and returns their number. Each migration is one `DO` statement that includes
 * its row in the history, under a lock of the history table. So replicas that start together apply it once, a crash
 * leaves nothing half done, and it works behind a transaction pooler. A lock that blocks writers is awaited for only
 * 200 ms and then retried, so that no other statement queues behind it during a dump. An autovacuum is made to yield.
 * Without a new migration nothing is written, so a role that can only read and write rows can start.
 */
export async function applyMigrations({ url, schema, folder }: Migrations, wait: LockWait = {}): Promise<number> {
  const files = readMigrationFiles({ migrationsFolder: folder })
  return withClient(url, async (client) => {
    const known = await history(client, schema, files)
    const missing = files.filter(({ hash }) => !known.has(hash))
    const patience = patienceOf(schema, wait)
    for (const migration of missing) {
      const sql = await withoutLargeIndexes(client, migration.sql)
      await untilUnlocked(patience, () =>
        // Longer than any migration: a unique index of a large table takes time.
        withDeadline(client.unsafe(statement(schema, { ...migration, sql })), 3_600_000, 'a migration'),
      )
    }
    return missing.length === 0 ? 0 : (await history(client, schema, files)).size - known.size
  })
}

/** Creates the indexes that the migrations left out, because their tables are large. The tables stay in use. */
export async function createLargeIndexes({ url, schema, folder }: Migrations, wait: LockWait = {}): Promise<void> {
  const indexes = indexesAfter(readMigrationFiles({ migrationsFolder: folder }).flatMap((file) => file.sql))
  await withClient(url, async (client) => {
    const patience = patienceOf(schema, wait)
    for (const index of await missingIndexes(client, indexes))
      await untilUnlocked(patience, () => buildIndex(client, index))
  })
}

/** True if every migration in the folder has been applied. */
export async function isUpToDate({ url, schema, folder }: Migrations): Promise<boolean> {
  const files = readMigrationFiles({ migrationsFolder: folder })
  return withClient(url, async (client) => {
    const known = await history(client, schema, files)
    return files.every(({ hash }) => known.has(hash))
  })
}

async function withClient<T>(url: string, work: (client: postgres.Sql) => Promise<T>): Promise<T> {
  const { url: address, ssl } = parsePostgresUrl(url)
  const options = { ssl, max: 1, prepare: false, connect_timeout: 10, fetch_types: false, onnotice: () => {} }
  const client = postgres(address, options)
  try {
    return await work(client)
  } finally {
    await client.end({ timeout: 5 })
  }
}

/** The hashes of the applied migrations. Throws an OtherHistoryError if the first of `files` is not among them. */
async function history(client: postgres.Sql, schema: string, files: readonly Migration[]): Promise<Set<string>> {
  const read = async () => {
    const [table] = await client.unsafe('select to_regclass($1) is not null as known', [`${schema}.migrations`])
    if (!table?.['known']) return new Set<string>()
    return new Set((await client.unsafe(`select hash from ${schema}.migrations`)).map((row) => String(row['hash'])))
  }
  const known = await withDeadline(read(), 10_000, 'reading the migrations that were applied')
  if (known.size > 0 && files[0] !== undefined && !known.has(files[0].hash))
    throw new OtherHistoryError(
      `the schema ${schema} comes from before the first release and cannot be upgraded: delete it with all its rows ` +
        `(drop schema ${schema} cascade), or use another database; on a laptop delete .data/`,
    )
  return known
}

type Patience = { schema: string; until: number; wait: LockWait }

function patienceOf(schema: string, wait: LockWait): Patience {
  return { schema, until: performance.now() + (wait.lockWaitMs ?? 60_000), wait }
}

async function untilUnlocked({ schema, until, wait }: Patience, work: () => Promise<unknown>): Promise<void> {
  const began = performance.now()
  for (let attempt = 0; ; attempt += 1) {
    try {
      await work()
      return
    } catch (error) {
      if (!(metALock(error) || hadToGiveWay(error)) || performance.now() >= until || wait.signal?.aborted) throw error
      // Programs that start together wait for each other briefly, which is not worth a message.
      if (performance.now() - began >= 1000)
        wait.onWait?.(`migrating ${schema} waits for a lock, perhaps of a dump or of another migration`)
      const pauseMs = Math.min(100 * 1.5 ** attempt, 5000) * (0.5 + Math.random())
      await delay(pauseMs, undefined, { signal: wait.signal }).catch(() => {})
    }
  }
}

function statement(schema: string, { sql, hash, folderMillis }: Migration): string {
  return `do $run$ begin
    perform set_config('lock_timeout', '200ms', true);
    begin
      if to_regnamespace('${schema}') is null then create schema ${schema}; end if;
      if to_regclass('${schema}.migrations') is null then
        create table ${schema}.migrations (id serial primary key, hash text not null, created_at bigint);
      end if;
    exception when unique_violation or duplicate_schema or duplicate_table then
      raise exception using errcode = 'lock_not_available', message = 'another mediadock is migrating';
    end;
    lock table ${schema}.migrations in share row exclusive mode;
    if not exists (select from ${schema}.migrations where hash = '${hash}') then
      ${sql.flatMap(withoutAutovacuum).join('\n      ')}
      execute $migration$${sql.join(';\n')}$migration$;
      insert into ${schema}.migrations (hash, created_at) values ('${hash}', ${folderMillis});
    end if;
  end $run$`
}

/**
 * Makes an autovacuum of the table yield, which it does after a wait of one second (`deadlock_timeout`). Then it cannot
 * block the migration. The lock blocks neither readers nor writers.
 */
function withoutAutovacuum(step: string): string[] {
  const table = /^\s*alter table (?:if exists )?(?:only )?(?<name>"?\w+"?\."?\w+"?)/i.exec(step)?.groups?.['name']
  if (table === undefined) return []
  return [
    `if to_regclass('${table}') is not null then
        perform set_config('lock_timeout', '3s', true);
        lock table ${table} in share update exclusive mode;
        perform set_config('lock_timeout', '200ms', true);
      end if;`,
  ]
}
