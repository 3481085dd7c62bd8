import type postgres from 'postgres'
import { describe, expect, it } from 'vitest'
import { long } from '../../chaos/length.ts'
import { usualServers, withTestDatabase } from '../../support/database.ts'
import { cutSequencers, linger, nothingWritten, read, sequence, write, type Written } from './support/model.ts'

/*
 * Eight writers land, some of them in transactions that stay open for a while or are rolled back;
 * strangers keep transactions and snapshots open meanwhile; three replicas give positions and lose their
 * connections; readers read on and die. Each reader must have had each change once, and those
 * of a request in the order in which they were committed.
 */

const wanted = long ? 1_000_000 : 2000
const names = ['first', 'second', 'third']

describe.each(usualServers)('the feed (%s)', (server) => {
  it(
    `gives each of ${wanted} changes to each reader once and in order`,
    { timeout: long ? 10_800_000 : 120_000 },
    async () => {
      const { sql, url } = await withTestDatabase(server)
      await sql`create table taken (reader text, nth bigserial, position bigint, request_id uuid, change text, primary key (reader, position))`
      const written = nothingWritten()
      const ended = new AbortController()
      const sequenced = new AbortController()
      const readers = names.map((name) => read(url, { name, signal: sequenced.signal }))
      const strangers = [linger(url, ended.signal), linger(url, ended.signal), cutSequencers(sql, ended.signal)]
      const replicas = [3, 100, 100].map((maxStatements) => sequence(url, { maxStatements, signal: ended.signal }))
      await Promise.all(Array.from({ length: 8 }, () => write(url, written, wanted)))
      ended.abort()
      await Promise.all([...replicas, ...strangers])
      sequenced.abort()
      await Promise.all(readers)

      await expectAsWritten(sql, written)
      expect([...(await takenBy(sql))]).toEqual(
        names.map((reader) => ({ reader, changes: written.changes, in_feed: written.changes, out_of_order: 0 })),
      )
    },
  )
})

async function expectAsWritten(sql: postgres.Sql, { byRequest }: Written): Promise<void> {
  const rows = await sql<{ request_id: string; each: string[] }[]>`
    select request_id, array_agg(concat(status, ' ', media_complete::text) order by position) as each from mediadock.feed group by request_id`
  expect(rows.length).toBe(byRequest.size)
  expect(rows.filter(({ request_id, each }) => String(each) !== String(byRequest.get(request_id)))).toEqual([])
}

/** The changes that each reader has received, and the feed. */
function takenBy(sql: postgres.Sql) {
  return sql`
    select reader, count(*)::int as changes, count(f.position)::int as in_feed, count(*) filter (where t.position <= before)::int as out_of_order
    from (select *, lag(position) over (partition by reader order by nth) as before from taken) t
    left join mediadock.feed f on f.position = t.position and f.request_id = t.request_id and t.change = concat(f.status, ' ', f.media_complete::text)
    group by reader order by reader`
}
