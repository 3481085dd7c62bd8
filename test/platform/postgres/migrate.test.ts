import { randomBytes } from 'node:crypto'
import path from 'node:path'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../../src/platform/deadline.ts'
import { isUpToDate, migrate } from '../../../src/platform/postgres/migrate.ts'
import { withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../../support/own-packaged-postgres.ts'
import { breakpoint, folderOf, writeMigrations } from './support/migration-folder.ts'

const schema = 'probe'

const first = ['create table probe.runs (n int);', 'insert into probe.runs values (1);'].join(breakpoint)
const second = `create function probe.two() returns int language plpgsql as $$ begin return 2; end $$;${breakpoint}insert into probe.runs values (probe.two());`

const runs = async ({ sql }: TestDatabase) => (await sql`select n from probe.runs order by n`).map(({ n }) => n)

it('applies each migration once, in order, and the new ones later', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(first)
  const at = { url: database.url, schema, folder }
  expect(await isUpToDate(at)).toBe(false)
  expect(await migrate(at)).toBe(1)
  expect(await migrate(at)).toBe(0)
  expect(await runs(database)).toEqual([1])
  expect(await isUpToDate(at)).toBe(true)

  await writeMigrations(folder, first, second)
  expect(await isUpToDate(at)).toBe(false)
  expect(await migrate(at)).toBe(1)
  expect(await runs(database)).toEqual([1, 2])
  expect(await isUpToDate(at)).toBe(true)
})

it('a schema made by other migrations is refused and unchanged', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(`-- another text${breakpoint}${first}`, second)
  const at = { url: database.url, schema, folder }
  await migrate(at)
  await writeMigrations(folder, first, second, 'insert into probe.runs values (3)')
  await expect(migrate(at)).rejects.toMatchObject({ code: 'other_history' })
  await expect(isUpToDate(at)).rejects.toThrow(/delete it with all its rows \(drop schema probe cascade\)/)
  expect(await runs(database)).toEqual([1, 2])
})

it('applied by eight at once, each migration is applied once', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(`${first}${breakpoint}select pg_sleep(0.2);`, second)
  await Promise.all(Array.from({ length: 8 }, () => migrate({ url: database.url, schema, folder })))
  expect(await runs(database)).toEqual([1, 2])
  expect(await database.sql`select count(*)::int as n from probe.migrations`).toEqual([{ n: 2 }])
})

it('a failed migration leaves nothing half done, and succeeds once it is fixed', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(`create table probe.half (n int);${breakpoint}insert into probe.half values (1 / 0);`)
  const at = { url: database.url, schema, folder }
  await expect(migrate(at)).rejects.toThrow(/division by zero/)
  expect(await database.sql`select nspname from pg_namespace where nspname = ${schema}`).toEqual([])
  expect(await isUpToDate(at)).toBe(false)

  await writeMigrations(folder, first, second)
  expect(await migrate(at)).toBe(2)
  expect(await runs(database)).toEqual([1, 2])
})

it('a later migration that fails leaves the earlier ones as they were', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(first)
  const at = { url: database.url, schema, folder }
  await migrate(at)
  await writeMigrations(folder, first, `alter table probe.runs add column more int;${breakpoint}select * from nowhere;`)
  await expect(migrate(at)).rejects.toThrow(/nowhere/)
  expect(await database.sql`select * from probe.runs`).toEqual([{ n: 1 }])
  expect(await database.sql`select count(*)::int as n from probe.migrations`).toEqual([{ n: 1 }])
})

it.each([
  ['receiver', 'mediadock'],
  ['provider', 'provider'],
])(
  'the %s’s own migrations change nothing when applied again, nor when eight processes apply them to a new database',
  async (program, name) => {
    const database = await withTestDatabase()
    const at = {
      url: database.url,
      schema: name,
      folder: path.resolve(import.meta.dirname, '../../../drizzle', program),
    }
    expect(await migrate(at)).toBe(0)
    await database.sql.unsafe(`drop schema ${name} cascade`)
    await Promise.all(Array.from({ length: 8 }, () => migrate(at)))
    expect(await isUpToDate(at)).toBe(true)
    const [row] = await database.sql.unsafe(
      `select count(*)::int as n, count(distinct hash)::int as distinct from ${name}.migrations`,
    )
    expect(row?.['n']).toBe(row?.['distinct'])
  },
)

it('a dump’s lock is reported and tried again until the dump ends; other statements do not queue behind the wait', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(first)
  const at = { url: database.url, schema, folder }
  await migrate(at)
  await writeMigrations(folder, first, `alter table probe.runs add column more int;`)
  const dump = await database.sql.reserve()
  onTestFinished(() => dump.release())
  await dump`begin`
  await dump`lock table probe.runs in access share mode`

  const reports: string[] = []
  const migrating = migrate(at, { lockWaitMs: 60_000, onWait: (words) => reports.push(words) })
  // Each of these would queue behind an ALTER that waits.
  for (let n = 2; n <= 12; n += 1)
    await withDeadline(database.sql`insert into probe.runs values (${n})`, 5000, 'an insert')
  await eventually(() => reports.length >= 2)
  expect(new Set(reports)).toEqual(
    new Set(['migrating probe waits for a lock, perhaps of a dump or of another migration']),
  )
  await dump`commit`
  expect(await migrating).toBe(1)
  expect(await database.sql`select count(*)::int as n, count(more)::int as more from probe.runs`).toEqual([
    { n: 12, more: 0 },
  ])
})

describeOnPackaged('a packaged server', () => {
  it('a long autovacuum gives way', async () => {
    const slowly = {
      autovacuum_naptime: '1s',
      autovacuum_vacuum_cost_delay: '100ms',
      autovacuum_vacuum_cost_limit: '1',
    }
    const server = await withPackagedPostgres({ settings: { fsync: 'off', ...slowly } })
    const sql = postgres(server.url, { max: 2, onnotice: () => {} })
    onTestFinished(() => sql.end({ timeout: 1 }))
    const table =
      'create table probe.runs (n int) with (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0);'
    const folder = await folderOf(table)
    const at = { url: server.url, schema, folder }
    await migrate(at)
    await sql`insert into probe.runs select generate_series(1, 50000)`
    await sql`delete from probe.runs where n % 2 = 0`
    await eventually(async () => (await sql`select from pg_stat_progress_vacuum`).length === 1)

    await writeMigrations(folder, table, 'alter table "probe"."runs" add column more int;')
    const migrating = migrate(at, { lockWaitMs: 10_000 })
    for (let n = 0; n < 20; n += 1) await withDeadline(sql`insert into probe.runs (n) values (${n})`, 1000, 'an insert')
    await migrating
    expect(
      await sql`select from information_schema.columns where table_name = 'runs' and column_name = 'more'`,
    ).toHaveLength(1)
  })
})

it('a lock that stays ends the migration with the reason, and changes nothing else', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(first)
  const at = { url: database.url, schema, folder }
  await migrate(at)
  await writeMigrations(
    folder,
    first,
    `create table probe.more (n int);${breakpoint}alter table probe.runs add column more int;`,
  )
  const dump = await database.sql.reserve()
  onTestFinished(() => dump.release())
  await dump`begin`
  await dump`lock table probe.runs in access share mode`
  await expect(migrate(at, { lockWaitMs: 500 })).rejects.toMatchObject({ code: '55P03' })
  await dump`commit`
  expect(await database.sql`select to_regclass('probe.more') as known`).toEqual([{ known: null }])
})

it('a role that may only read the history suffices if nothing is pending', async () => {
  const database = await withTestDatabase()
  const folder = await folderOf(first)
  await migrate({ url: database.url, schema, folder })
  const role = `reader_${randomBytes(4).toString('hex')}`
  await database.sql.unsafe(
    `create role ${role} login password 'x'; grant usage on schema probe to ${role}; grant select on probe.migrations to ${role}`,
  )
  onTestFinished(async () => void (await database.sql.unsafe(`drop owned by ${role}; drop role ${role}`)))
  const url = new URL(database.url)
  Object.assign(url, { username: role, password: 'x' })
  expect(await migrate({ url: url.href, schema, folder })).toBe(0)
})
