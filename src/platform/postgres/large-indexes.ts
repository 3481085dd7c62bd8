import type postgres from 'postgres'
import { withDeadline } from '../deadline.ts'
import { checkAnswer } from './errors.ts'

/** An index that a migration creates, in drizzle-kit's form. `rest` is the text after the table's name. */
type IndexStep = { name: string; schema: string; table: string; rest: string }

/** An index of a smaller table takes a moment, so the migration itself creates it. */
const largeBytes = 8 * 1024 * 1024
/**
 * Each try builds the whole index. A try is lost if another process drops the unfinished index. After this many, an
 * operator must look.
 */
const maxTries = 5

/** Parses a step that creates an index. Skips unique indexes, because the new version may need them at once. */
function indexIn(step: string): IndexStep | undefined {
  const found = /^\s*create index "(?<name>\w+)" on "(?<schema>\w+)"\."(?<table>\w+)" (?<rest>[^]*?);?\s*$/i.exec(
    step,
  )?.groups
  if (!found) return undefined
  const { name = '', schema = '', table = '', rest = '' } = found
  return { name, schema, table, rest }
}

/** The indexes that exist after all these steps, in order of creation. */
export function indexesAfter(steps: readonly string[]): IndexStep[] {
  const indexes = new Map<string, IndexStep>()
  for (const step of steps) {
    const index = indexIn(step)
    if (index) indexes.set(index.name, index)
    const dropped = /^\s*drop (?<what>index|table) "\w+"\."(?<name>\w+)"/i.exec(step)?.groups
    for (const { name, table } of indexes.values()) {
      if (dropped?.['name'] === (dropped?.['what']?.toLowerCase() === 'index' ? name : table)) indexes.delete(name)
    }
  }
  return [...indexes.values()]
}

/** Removes from a migration the indexes of large tables, which would block writers. They are created afterwards. */
export async function withoutLargeIndexes(client: postgres.Sql, steps: readonly string[]): Promise<string[]> {
  const tables = [...new Set(steps.flatMap((step) => tableOf(indexIn(step)) ?? []))]
  if (tables.length === 0) return [...steps]
  const rows = await looked<{ name: string }>(
    client,
    `select name from unnest($1::text[]) as given (name)
     where pg_relation_size(to_regclass(name)) > ${largeBytes}
       or (select sum(pg_relation_size(relid)) from pg_partition_tree(to_regclass(name))) > ${largeBytes}`,
    [textArray(tables)],
  )
  const large = new Set(rows.map(({ name }) => name))
  return steps.filter((step) => !large.has(tableOf(indexIn(step)) ?? ''))
}

function tableOf(index: IndexStep | undefined): string | undefined {
  return index && `${index.schema}.${index.table}`
}

/** The indexes that are missing or invalid. A role that may not create them leaves them to another. */
export async function missingIndexes(client: postgres.Sql, indexes: readonly IndexStep[]): Promise<IndexStep[]> {
  if (indexes.length === 0) return []
  const rows = await looked<{ name: string }>(
    client,
    `select name from unnest($2::text[]) as given (name) join pg_namespace n on n.nspname = $1
     where not pg_has_role(n.nspowner, 'usage')
       or exists (
         select from pg_class c join pg_index i on i.indexrelid = c.oid and i.indisvalid
         where c.relnamespace = n.oid and c.relname = given.name)`,
    [indexes[0]?.schema ?? '', textArray(indexes.map(({ name }) => name))],
  )
  const done = new Set(rows.map(({ name }) => name))
  return indexes.filter(({ name }) => !done.has(name))
}

/**
 * Creates an index while its table is in use, on each partition if it has some. May be repeated after an interruption
 * and run by several processes at once: one builds, the others get `lock_not_available` and retry. Detects and drops an
 * unfinished index.
 */
export async function buildIndex(client: postgres.Sql, index: IndexStep): Promise<void> {
  const at = tableOf(index) ?? ''
  const [table] = await looked<{ partitioned: boolean }>(
    client,
    `select relkind = 'p' as partitioned from pg_class where oid = to_regclass($1)`,
    [at],
  )
  if (!table?.partitioned) return buildOn(client, index)
  const ofTable = `create index if not exists "${index.name}" on only "${index.schema}"."${index.table}" ${index.rest}`
  await run(client, shortly(ofTable))
  // Partitions created from now on get the index automatically.
  const parts = await looked<{ part: string }>(
    client,
    `select c.relname as part from pg_inherits p join pg_class c on c.oid = p.inhrelid
     where p.inhparent = to_regclass($1) and not exists (
       select from pg_inherits i join pg_index x on x.indexrelid = i.inhrelid
       where i.inhparent = to_regclass($2) and x.indrelid = c.oid)`,
    [at, `${index.schema}.${index.name}`],
  )
  for (const { part } of parts) {
    const own = { ...index, table: part, name: `${part}_${index.name}`.slice(0, 63) }
    await buildOn(client, own)
    const attach = `alter index "${index.schema}"."${index.name}" attach partition "${own.schema}"."${own.name}"`
    await run(client, shortly(attach))
  }
}

async function buildOn(client: postgres.Sql, index: IndexStep): Promise<void> {
  for (let tries = 0; (await missingIndexes(client, [index])).length > 0; tries += 1) {
    // Another process drops the index again and again.
    if (tries === maxTries) throw new Error(`the index ${index.name} was created ${maxTries} times and is missing`)
    await run(client, clear(index))
    await run(
      client,
      `create index concurrently if not exists "${index.name}" on "${index.schema}"."${index.table}" ${index.rest}`,
    )
  }
}

/**
 * The statement that removes an unfinished index and reserves the right to build it. Its first lock blocks neither
 * readers nor writers, and an autovacuum yields to it after a second. A builder holds that lock during the whole build.
 * Getting the lock therefore proves that no build runs, and that an invalid index is a leftover. The row in
 * `index_builds` prevents two builders from waiting for each other's snapshots.
 */
function clear({ schema, table, name }: IndexStep): string {
  // The row reserves the build for a few seconds. After that, the lock on the table shows that the build runs.
  return `do $clear$ begin
    perform set_config('lock_timeout', '3s', true);
    lock table "${schema}"."${table}" in share update exclusive mode;
    create table if not exists ${schema}.index_builds (name text primary key, leased_until timestamptz not null);
    insert into ${schema}.index_builds as b values ('${name}', clock_timestamp() + interval '5 s')
      on conflict (name) do update set leased_until = excluded.leased_until where b.leased_until < clock_timestamp();
    if not found then
      raise exception using errcode = 'lock_not_available', message = 'another mediadock is about to create this index';
    end if;
    if exists (select from pg_index where indexrelid = to_regclass('${schema}.${name}') and not indisvalid) then
      perform set_config('lock_timeout', '200ms', true);
      drop index "${schema}"."${name}";
    end if;
  end $clear$`
}

function shortly(statement: string): string {
  return `do $shortly$ begin
    perform set_config('lock_timeout', '200ms', true);
    execute $statement$${statement}$statement$;
  end $shortly$`
}

/** The names need no escaping. */
function textArray(names: readonly string[]): string {
  return `{${names.join(',')}}`
}

async function run(client: postgres.Sql, statement: string): Promise<void> {
  // An index of a large table can take hours.
  await withDeadline(client.unsafe(statement), 6 * 3_600_000, 'making an index')
}

async function looked<Row extends object>(client: postgres.Sql, statement: string, values: string[]): Promise<Row[]> {
  const rows = client.unsafe<Row[]>(statement, values)
  return [...checkAnswer(await withDeadline(rows, 10_000, 'looking for indexes'), statement)]
}
