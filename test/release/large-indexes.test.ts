import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { prepareSchema } from '../../src/platform/postgres/await-postgres.ts'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import {
  building,
  first,
  index,
  indexes,
  made,
  rows,
  withLargeTable,
} from '../platform/postgres/support/large-table.ts'
import { folderOf } from '../platform/postgres/support/migration-folder.ts'
import { watchedLogger } from '../platform/support/watched-logger.ts'
import { usualServers, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

it.each([
  ['rows', /waiting for old snapshots/],
  ['days', /building index/],
] as const)(
  'an index of large %s that was interrupted while %s is made by the next try, and nothing is left of the first',
  { timeout: 120_000 },
  async (table, phase) => {
    const database = await withLargeTable(table)
    const { sql, at } = database
    const reader = await sql.reserve()
    if (phase.test('waiting for old snapshots')) await reader.unsafe('begin isolation level repeatable read; select 1')
    const failing = expect(migrate(at)).rejects.toThrow()
    const pid = await eventually(
      async () => (await building(database)).find((one) => phase.test(one.phase))?.pid,
      30_000,
    )
    await sql`select pg_terminate_backend(${pid})`
    await failing
    await reader.unsafe('rollback')
    reader.release()
    // The migration's own statements are applied once.
    expect(await sql`select count(*)::int as n from probe.migrations`).toEqual([{ n: 2 }])
    expect((await indexes(database)).filter(({ valid }) => !valid).length).toBeGreaterThan(0)

    expect(await migrate(at)).toBe(0)
    expect(await indexes(database)).toEqual(made[table])
    expect(await sql`select count(*)::int as n from probe.migrations`).toEqual([{ n: 2 }])
  },
)

it('is built once by four concurrent migrations', async () => {
  const database = await withLargeTable('rows')
  const pids = new Set<number>()
  let isOver = false
  const all = Promise.all(Array.from({ length: 4 }, () => migrate(database.at))).finally(() => (isOver = true))
  while (!isOver) {
    for (const { pid } of await building(database)) pids.add(pid)
    await delay(20)
  }
  await all
  expect(pids.size).toBe(1)
  expect(await indexes(database)).toEqual(made.rows)
})

const sampleMs = 50

describe.each(usualServers)('an index of a large table, on the %s server', (server) => {
  it.each(['rows', 'days'] as const)('is built while its %s are written: no insert waits for it', async (table) => {
    const database = await withLargeTable(table, server)
    const { sql, at } = database
    let isOver = false
    const migrating = migrate(at).finally(() => (isOver = true))
    const inserting = (async () => {
      for (let n = 0; !isOver; n += 1) {
        await sql.unsafe(`insert into probe.${table} (n) values (${n % rows})`)
        await delay(5)
      }
    })()
    const watched = { whileBuilding: 0, blocked: 0, longest: 0 }
    while (!isOver) {
      const [now] = await sql`
        select exists (select from pg_stat_activity where datname = current_database() and query like 'insert into probe.%'
            and state = 'active' and cardinality(pg_blocking_pids(pid)) > 0) as blocked,
          exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query ~* '^(create index|do ).*_slow') as building`
      watched.blocked = now?.['blocked'] ? watched.blocked + 1 : 0
      watched.longest = Math.max(watched.longest, watched.blocked)
      if (now?.['building']) watched.whileBuilding += 1
      await delay(sampleMs)
    }
    expect(await migrating).toBe(1)
    await inserting
    expect(await indexes(database)).toEqual(made[table])
    // A lock is waited for 200 ms at most, however long the index takes.
    expect(watched.whileBuilding).toBeGreaterThan(10)
    expect(watched.longest).toBeLessThanOrEqual(200 / sampleMs)
    expect(await migrate(at)).toBe(0)
  })
})

it('a start does not wait for it', async () => {
  const database = await withLargeTable('rows')
  const { logger } = watchedLogger()
  const start = { ...database.at, program: 'probe', migrateOnStart: true, production: true, logger }
  expect(await prepareSchema(start, new AbortController().signal)).toBe(true)
  expect(await database.sql`select count(*)::int as n from probe.migrations`).toEqual([{ n: 2 }])
  expect(await indexes(database)).not.toEqual(made.rows)
  await eventually(async () => (await indexes(database))[0]?.['valid'] === true)
})

it('of a small table is built by the migration itself, and not again after a later migration dropped it', async () => {
  const { url, sql } = await withTestDatabase()
  const folder = await folderOf(first, index('rows'), 'DROP INDEX "probe"."rows_slow";')
  const at = { url, schema: 'probe', folder }
  expect(await migrate(at)).toBe(3)
  expect(await migrate(at)).toBe(0)
  expect(
    await sql`select to_regclass('probe.rows_slow') as known, to_regclass('probe.index_builds') as builds`,
  ).toEqual([{ known: null, builds: null }])
})
