import { sql } from 'drizzle-orm'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { executePrepared } from '../../../src/platform/postgres/prepared.ts'
import { withTestDatabase } from '../../support/database.ts'
import { startPostgresProxy } from '../support/postgres-proxy.ts'

/** One connection, so that what it keeps can be read from it. */
function poolAt(url: string): Pool {
  const pool = createPool({ url, max: 1 })
  onTestFinished(() => pool.close())
  return pool
}

const double = async ({ db }: Pool, n: number) =>
  (await executePrepared<{ n: number }>(db, sql`select ${n}::int * 2 as n`))[0]?.n
const kept = ({ client }: Pool) =>
  client.unsafe(`select statement from pg_prepared_statements where statement like '%* 2%'`)

describe('a prepared statement', () => {
  it('is kept once by Postgres, regardless of the number of runs', async () => {
    const pool = poolAt((await withTestDatabase()).url)
    expect([await double(pool, 1), await double(pool, 2), await double(pool, 3)]).toEqual([2, 4, 6])
    expect(await kept(pool)).toEqual([{ statement: 'select $1::int * 2 as n' }])
  })

  it('is run unprepared behind a pooler, where the next run may reach another session', async () => {
    const proxy = await startPostgresProxy((await withTestDatabase()).url)
    proxy.actAsPooler()
    const pool = poolAt(proxy.url)
    expect([await double(pool, 1), await double(pool, 2)]).toEqual([2, 4])
    expect(await kept(pool)).toEqual([])
  })

  it('still runs if the server no longer has it', async () => {
    const pool = poolAt((await withTestDatabase()).url)
    await double(pool, 1)
    await pool.client.unsafe('deallocate all')
    expect([await double(pool, 2), await double(pool, 3)]).toEqual([4, 6])
  })

  it('fails with its own error, and the next one uses a new connection', async () => {
    const proxy = await startPostgresProxy((await withTestDatabase()).url)
    const pool = poolAt(proxy.url)
    await expect(executePrepared(pool.db, sql`select 1 / ${0}::int`)).rejects.toMatchObject({ code: '22012' })
    proxy.cut()
    expect(await double(pool, 2).catch(() => double(pool, 2))).toBe(4)
    expect(await kept(pool)).toHaveLength(1)
  })
})
