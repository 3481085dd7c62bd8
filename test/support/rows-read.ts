import { createPool, type Database } from '../../src/platform/postgres/postgres.ts'

/** A connection that keeps its plans, and counts the requests that Postgres reads for it. */
export function countingPool(url: string) {
  const { client, db, close } = createPool({ url, max: 1, keepsPlans: true })
  const rowsRead = async () => {
    const [row] = await db.execute<{
      n: number
    }>(`select (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int as n
      from pg_stat_xact_user_tables where relid = 'mediadock.requests'::regclass`)
    return row?.n ?? NaN
  }
  /** With how many rows of requests were read, by a scan or an index. */
  const reading = async <T>(work: (db: Database) => Promise<T>): Promise<{ answer: T; read: number }> => {
    try {
      await client`begin`
      const before = await rowsRead()
      const answer = await work(db)
      return { answer, read: (await rowsRead()) - before }
    } finally {
      await client`commit`
    }
  }
  return { reading, close }
}
