import { readMigrationFiles } from 'drizzle-orm/migrator'
import postgres from 'postgres'

export type Migrations = { url: string; schema: string; folder: string }

const advisoryLock = 7_120_241_121

/**
 * Brings one schema up to date. The whole run is a single `DO` statement under
 * an advisory lock, so that replicas that start together apply each migration
 * once, a crash leaves nothing half done, and a transaction pooler in front
 * is no obstacle. Answers how many migrations were new.
 */
export async function migrate({ url, schema, folder }: Migrations): Promise<number> {
  const client = postgres(url, { max: 1, prepare: false, connect_timeout: 10, onnotice: () => {} })
  try {
    const before = await applied(client, schema)
    await client.unsafe(statement(schema, folder))
    return (await applied(client, schema)) - before
  } finally {
    await client.end({ timeout: 5 })
  }
}

/** Whether every migration in the folder has been applied. */
export async function isMigrated(client: postgres.Sql, { schema, folder }: Omit<Migrations, 'url'>): Promise<boolean> {
  return (await applied(client, schema)) >= readMigrationFiles({ migrationsFolder: folder }).length
}

async function applied(client: postgres.Sql, schema: string): Promise<number> {
  const [table] = await client.unsafe('select to_regclass($1) is not null as known', [`${schema}.migrations`])
  if (!table?.['known']) return 0
  const [row] = await client.unsafe(`select count(*)::int as n from ${schema}.migrations`)
  return Number(row?.['n'] ?? 0)
}

function statement(schema: string, folder: string): string {
  const steps = readMigrationFiles({ migrationsFolder: folder }).map(
    ({ sql, hash, folderMillis }) => `
      if not exists (select from ${schema}.migrations where hash = '${hash}') then
        execute $migration$${sql.join(';\n')}$migration$;
        insert into ${schema}.migrations (hash, created_at) values ('${hash}', ${folderMillis});
      end if;`,
  )
  return `do $run$ begin
    perform pg_advisory_xact_lock(${advisoryLock});
    create schema if not exists ${schema};
    create table if not exists ${schema}.migrations (id serial primary key, hash text not null, created_at bigint);
    ${steps.join('\n')}
  end $run$`
}
