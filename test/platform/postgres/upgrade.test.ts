import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'

const root = path.resolve(import.meta.dirname, '../../..')

/** A program's first migrations: without a number the baseline alone. */
async function baselineOf(program: string, migrations = 1): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-baseline-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  await fs.cp(path.join(root, 'drizzle', program), folder, { recursive: true })
  const journal = path.join(folder, 'meta/_journal.json')
  const { entries, ...more }: { entries: unknown[] } = JSON.parse(await fs.readFile(journal, 'utf8'))
  await fs.writeFile(journal, JSON.stringify({ ...more, entries: entries.slice(0, migrations) }))
  return folder
}

type Column = { table: string; name: string; type: string }

/** The columns without a default, per table, in the order of references. */
const columnsOf = (sql: postgres.Sql, schema: string) => sql<Column[]>`
  select c.relname as table, a.attname as name, format_type(a.atttypid, null) as type
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  where c.relnamespace = ${schema}::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and c.relname not in ('migrations', 'index_builds')
    and a.attidentity = '' and a.attgenerated = '' order by c.relname, a.attnum`

/** A value for row `n`, of any column of this type: rows of one number belong together. */
const values: Record<string, string> = {
  uuid: `('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid`,
  text: `'x' || n`,
  'timestamp with time zone': `timestamptz '2026-01-01' + n * interval '1 minute'`,
  jsonb: `jsonb_build_object('n', n)`,
  bytea: `decode(repeat(lpad(to_hex(n), 8, '0'), 100), 'hex')`,
  'text[]': `array['x' || n]`,
  'integer[]': `array_fill(0, array[61])`,
  boolean: 'true',
  xid8: 'n::text::xid8',
  'boolean[]': 'array[true]',
  'uuid[]': 'array[gen_random_uuid()]',
  'smallint[]': 'array[n::smallint]',
  'bigint[]': 'array[n::bigint]',
}
const particular: Record<string, string> = {
  'mediadock.deliveries.environment': `'live'`,
  'mediadock.requests.key_source': `'tracked'`,
  'mediadock.requests.status': `case when n % 2 = 0 then 'FAILED' else 'COMPLETED' end`,
}

/** Enough of them that their indexes are made beside the migrations. */
const rowsOf = (table: string) => (table === 'deliveries' ? 16_000 : 4)

async function fill(sql: postgres.Sql, schema: string): Promise<void> {
  const byTable = Map.groupBy(await columnsOf(sql, schema), ({ table }) => table)
  // A table of one row has it from the baseline.
  for (const [table, columns] of byTable) if (columns.some(({ name }) => name === 'single')) byTable.delete(table)
  // Media first: what is COMPLETED has some.
  for (const [table, columns] of [...byTable].toSorted(([a], [b]) => Number(b === 'media') - Number(a === 'media'))) {
    const given = columns.map(({ name, type }) => particular[`${schema}.${table}.${name}`] ?? values[type] ?? 'n')
    await sql.unsafe(`insert into ${schema}.${table} (${columns.map(({ name }) => `"${name}"`).join(', ')})
      select ${given.join(', ')} from generate_series(1, ${rowsOf(table)}) as n`)
  }
}

/** A digest of each column of each table. */
async function contents(
  sql: postgres.Sql,
  schema: string,
  columns: readonly Column[],
): Promise<Record<string, string>> {
  const all = await Promise.all(
    [...Map.groupBy(columns, ({ table }) => table)].map(async ([table, ofTable]) => {
      const digests = ofTable.map(
        ({ name }) => `md5(string_agg("${name}"::text, ',' order by "${name}"::text)) as "${table}.${name}"`,
      )
      const [row] = await sql.unsafe(
        `select count(*)::text as "${table}", ${digests.join(', ')} from ${schema}.${table}`,
      )
      return { ...row }
    }),
  )
  return Object.assign({}, ...all)
}

const indexes = (sql: postgres.Sql, schema: string) => sql`
  select c.relname as name, pg_get_indexdef(c.oid) as definition, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indexrelid
  where c.relnamespace = ${schema}::regnamespace and c.relname not like 'index_builds%' and not c.relispartition order by 1`

/** As a receiver of the baseline writes, while one of this version begins. */
const writing: Record<string, string> = {
  // Not into the inbox: its columns changed before the first release.
  mediadock: `insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      values (gen_random_uuid(), 'old', gen_random_uuid(), 'ERROR', 'live', now(), now(), '{}', 'old')`,
  provider: `select 1`,
}

it.each([
  ['receiver', 'mediadock'],
  ['provider', 'provider'],
])(
  'the %s’s baseline with rows in every table is upgraded to the newest schema without losing rows, while the baseline’s version still writes',
  async (program, schema) => {
    const { url, sql } = await withTestDatabase(preferredServer)
    const fresh = await indexes(sql, schema)
    await sql.unsafe(`drop schema ${schema} cascade`)
    await migrate({ url, schema, folder: await baselineOf(program) })
    await fill(sql, schema)
    const columns = await columnsOf(sql, schema)
    const before = await contents(sql, schema, columns)
    expect(Object.keys(before).length).toBeGreaterThan(50)

    let written = 0
    const upgrading = { isOver: false }
    const writer = (async () => {
      for (; !upgrading.isOver; written += 1) {
        await sql.unsafe(writing[schema] ?? '')
        await delay(5)
      }
    })()
    await eventually(() => written > 0)
    await migrate({ url, schema, folder: path.join(root, 'drizzle', program) }).finally(() => (upgrading.isOver = true))
    await writer

    if (schema === 'mediadock') {
      await sql`delete from mediadock.deliveries where webhook_id = 'old'`
    }
    expect(await contents(sql, schema, columns)).toEqual(before)
    expect(await indexes(sql, schema)).toEqual(fresh)
  },
)

it('an environment that only a webhook showed becomes that of its result, and readers see the same', async () => {
  const { url, sql } = await withTestDatabase(preferredServer)
  await sql.unsafe('drop schema mediadock cascade')
  await migrate({ url, schema: 'mediadock', folder: await baselineOf('receiver', 24) })
  const add = (name: string, given: object) =>
    sql`insert into mediadock.requests ${sql({ request_id: randomUUID(), model: name, status: 'FAILED', landed_at: new Date(), ...given })}`
  await add('by a webhook', { sandbox: true })
  await add('tracked', { sandbox: true, signed_sandbox: false })
  await add('confirmed', { sandbox: false, confirmed_at: new Date() })
  await add('open', { sandbox: true, status: 'IN_QUEUE', landed_at: null })
  const shown = () => sql`select model, sandbox from mediadock.results order by model`
  const before = await shown()
  await migrate({ url, schema: 'mediadock', folder: path.join(root, 'drizzle/receiver') })
  expect(await shown()).toEqual(before)
  expect(await sql`select model, sandbox, signed_sandbox from mediadock.requests order by model`).toEqual([
    { model: 'by a webhook', sandbox: null, signed_sandbox: true },
    { model: 'confirmed', sandbox: false, signed_sandbox: null },
    { model: 'open', sandbox: true, signed_sandbox: null },
    { model: 'tracked', sandbox: true, signed_sandbox: false },
  ])
})
