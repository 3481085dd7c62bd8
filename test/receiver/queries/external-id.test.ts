import { expect, it, onTestFinished } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { listRequests } from '../../../src/receiver/queries/requests.ts'
import { createTestDatabase } from '../../support/database.ts'

it.each(['before statistics', 'with statistics'])(
  'a look-up by the id at the source reads an index (%s)',
  async (when) => {
    const database = await createTestDatabase()
    // One connection, so that its figures can be flushed.
    const pool = createPool({ url: database.url, max: 1 })
    onTestFinished(async () => {
      await pool.close()
      await database.drop()
    })
    await database.sql`
    insert into mediadock.requests (request_id, source_name, external_id, tracked_at)
    select gen_random_uuid(), 'engine', 'job-' || i, now() - i * interval '1 second' from generate_series(1, 20000) i`
    if (when === 'with statistics') await database.sql`analyze mediadock.requests`
    const read = async () => {
      await pool.db.execute(sql`select pg_stat_force_next_flush()`)
      const [row] = await pool.db.execute<{ rows: number }>(sql`
      select (seq_tup_read + idx_tup_fetch)::int as rows from pg_stat_user_tables where relname = 'requests'`)
      return row?.rows ?? expect.fail()
    }
    const before = await read()
    const options = { now: new Date(), stuckAfterSeconds: 120 }
    const { data } = await listRequests(pool.db, { external_id: 'job-19999' }, options)
    expect(data.map(({ external_id }) => external_id)).toEqual(['job-19999'])
    expect((await read()) - before).toBeLessThan(100)
  },
)
