import { migrate, type Migrations } from '../../../../src/platform/postgres/migrate.ts'
import { withTestDatabase, type TestDatabase, type TestServer } from '../../../support/database.ts'
import { breakpoint, folderOf, writeMigrations } from './migration-folder.ts'

export const rows = 1200
/** A page for each row, and an index that takes a millisecond for each: some ten megabytes and two seconds. */
export const first = [
  `create function probe.slow(n int) returns int language plpgsql immutable as $$ begin perform pg_sleep(0.001); return n; end $$;`,
  `create table probe.rows (n int, at timestamptz default now(), filler text default repeat('x', 5000));`,
  `create table probe.days (n int, at timestamptz default now(), filler text default repeat('x', 5000)) partition by range (n);`,
  `create table probe.days_1 partition of probe.days for values from (0) to (${rows / 2});`,
  `create table probe.days_2 partition of probe.days for values from (${rows / 2}) to (${rows});`,
  `alter table probe.rows alter filler set storage plain;`,
  `alter table probe.days_1 alter filler set storage plain;`,
  `alter table probe.days_2 alter filler set storage plain;`,
].join(breakpoint)
export const index = (table: string) =>
  `CREATE INDEX "${table}_slow" ON "probe"."${table}" USING btree (probe.slow(n)) WHERE n >= 0;`

export async function withLargeTable(table: 'rows' | 'days', server?: TestServer) {
  const database = await withTestDatabase(server)
  const folder = await folderOf(first)
  const at: Migrations = { url: database.url, schema: 'probe', folder }
  await migrate(at)
  await database.sql.unsafe(`insert into probe.${table} (n) select generate_series(0, ${rows - 1})`)
  await writeMigrations(folder, first, `alter table probe.${table} add column more int;${breakpoint}${index(table)}`)
  return { ...database, at }
}

/** The index and those of its partitions, each with whether it is valid. */
export const indexes = ({ sql }: TestDatabase) => sql`
  select c.relname as name, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indexrelid
  where c.relnamespace = 'probe'::regnamespace and c.relname like '%slow%' order by 1`
export const building = ({ sql }: TestDatabase) => sql<{ pid: number; phase: string }[]>`
  select pid, phase from pg_stat_progress_create_index where datid = (select oid from pg_database where datname = current_database())`
export const made = {
  rows: [{ name: 'rows_slow', valid: true }],
  days: ['days_1_days_slow', 'days_2_days_slow', 'days_slow'].map((name) => ({ name, valid: true })),
}
