import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { building, indexes, made, withLargeTable } from '../platform/postgres/support/large-table.ts'
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
