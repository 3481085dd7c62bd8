import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import type { Database } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { claim } from '../../../src/receiver/landing/inbox.ts'
import { long } from '../../chaos/length.ts'
import { preferredServer, usualServers, withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { createTestWorker } from '../../support/worker.ts'

const mib = 1024 * 1024
/** More than the process could hold at once. */
const { failures, heapMb } = long ? { failures: 1100, heapMb: 512 } : { failures: 110, heapMb: 96 }

/** Authentic failures whose words take up `bytes`, as they lie there after a burst. */
async function storeFailures({ sql }: TestDatabase, count: number, bytes: number): Promise<void> {
  // The function makes this session report what it wrote at once, instead of in the middle of a later measurement.
  await sql.unsafe(`
    with reported as materialized (select pg_stat_force_next_flush()),
    made as (
      select gen_random_uuid() as id, gen_random_uuid() as request_id, n from reported, generate_series(1, ${count}) n
    ),
    stored as (
      insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      select id, 'w' || n, request_id, 'ERROR', 'live', now() - interval '1 minute', now() - interval '1 minute', '{}', convert_to(
        '{"request_id":"' || request_id || '","status":"ERROR","error":{"code":"GENERATION_FAILED","message":"' || repeat('a\\"\\u0001 ', ${bytes} / 10) || '"}}', 'UTF8')
      from made
    )
    insert into mediadock.inbox (delivery_id, due_at) select id, now() - interval '1 minute' + n * interval '1 ms' from made`)
}

describe.each(usualServers)('the memory of landing (%s)', (server) => {
  it('a claim takes up to 8 MiB, or one larger delivery, and reads no other body', async () => {
    const database = await withTestDatabase(server)
    await database.sql`alter table mediadock.deliveries alter body set storage external`
    await storeFailures(database, 50, mib)
    const { db } = createTestWorker({ databaseUrl: database.url, max: 1 })
    const taken = (maxBytes: number) => claim(db, { limit: 500, maxBytes, now: postgresTime() })
    expect(await taken(1)).toHaveLength(1)
    const pagesBefore = await toastPagesRead(db)
    expect(await taken(8 * mib)).toHaveLength(8)
    // A body takes about as many pages as its size, and is read once to be sent: 9 of 50 were.
    expect((await toastPagesRead(db)) - pagesBefore).toBeLessThan(25 * (mib / 8192))
    const rest = await taken(1000 * mib)
    expect(rest).toHaveLength(41)
    expect(rest.every(({ claims }) => claims === 1)).toBe(true)
  })

  it.runIf(server === preferredServer)(
    `${failures} failures of 1 MB are landed by a process with ${heapMb} MB`,
    async () => {
      const database = await withTestDatabase(server)
      await storeFailures(database, failures, mib)
      const child = spawn(
        process.execPath,
        [`--max-old-space-size=${heapMb}`, path.join(import.meta.dirname, 'support/land-all.ts'), database.url],
        { stdio: ['ignore', 'pipe', 'inherit'] },
      )
      onTestFinished(() => void child.kill('SIGKILL'))
      const printed: string[] = []
      child.stdout.setEncoding('utf8').on('data', (text: string) => printed.push(text))
      const [code] = await once(child, 'exit')
      expect(code).toBe(0)
      const landed = JSON.parse(printed.join(''))
      expect(landed).toMatchObject({ landed: failures, failed: 0, parked: 0 })
      // Bodies lie beside the heap until they are text.
      expect(landed.rss_mb).toBeLessThan(heapMb + 200)
      const [row] =
        await database.sql`select count(*)::int as n, min(length(error_message)) as shortest from mediadock.requests where status = 'FAILED'`
      expect(row).toMatchObject({ n: failures })
    },
    180_000,
  )
})

/** Pages of bodies that were read so far. `db` has one connection, whose reads are counted at once. */
async function toastPagesRead(db: Database): Promise<number> {
  await db.execute(sql`select pg_stat_force_next_flush()`)
  const [row] = await db.execute<{ pages: string }>(sql`
    select toast_blks_hit + toast_blks_read as pages from pg_statio_user_tables where relname = 'deliveries'`)
  return Number(row?.pages)
}
