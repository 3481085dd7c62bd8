import { describe, expect, it } from 'vitest'
import { overSql } from '../../src/client/over-sql.ts'
import { testServers, withTestDatabase } from '../support/database.ts'

const rows = 12_000

// The callers' connections are not ours: JIT is on there, as it comes.
describe.each(testServers)('a page of the feed by SQL (%s)', (server) => {
  it.each(['missing', 'fresh'])(
    'scans no table and stays below the JIT threshold, with %s statistics',
    async (statistics) => {
      const { sql } = await withTestDatabase(server)
      await sql.unsafe(`
      alter table mediadock.requests disable trigger all; alter table mediadock.media disable trigger all;
      create temporary table ids as select gen_random_uuid() as id, n from generate_series(1, ${rows}) n;
      insert into mediadock.requests (request_id, status, media_complete, landed_at, source) select id, 'COMPLETED', true, now(), 'webhook' from ids;
      insert into mediadock.media (request_id, kind, position, url)
        select id, 'image', item, 'https://media.test/' || n || repeat('x', 900) from ids, generate_series(0, 1) item;
      insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete) select n, now(), id, 1, true from ids;
      ${statistics === 'fresh' ? 'analyze mediadock.requests, mediadock.media, mediadock.feed_entries' : ''}`)
      const asked: { text: string; params: (number | string)[] }[] = []
      const driver = {
        unsafe: (text: string, params: (number | string)[]) => {
          asked.push({ text, params })
          return sql.unsafe(text, params)
        },
      }
      const filtered = await overSql(driver, { key_name: 'nobody' })(8000, AbortSignal.timeout(10_000))
      expect(filtered).toEqual({ data: [], next_after: 9000, head: rows })
      const { data, head } = await overSql(driver)(8000, AbortSignal.timeout(10_000))
      expect({ changes: data.length, first: data[0]?.position, head }).toEqual({
        changes: 100,
        first: 8001,
        head: rows,
      })
      expect(data.every((change) => !('error' in change) && change.media.length === 2 && change.result !== null)).toBe(
        true,
      )

      for (const { text, params } of asked) {
        const [row] = await sql.unsafe<{ 'QUERY PLAN': [{ Plan: Plan }] }[]>(`explain (format json) ${text}`, params)
        const plan = row?.['QUERY PLAN'][0].Plan
        expect(plan && scansOf(plan)).toEqual([])
        // `jit_above_cost`, as it comes.
        expect(plan?.['Total Cost']).toBeLessThan(100_000)
      }
    },
  )
})

type Plan = { 'Node Type': string; 'Relation Name'?: string; 'Total Cost': number; Plans?: Plan[] }

/** The rows that a full scan would read. */
function scansOf(plan: Plan): string[] {
  const own = plan['Node Type'] === 'Seq Scan' ? [String(plan['Relation Name'])] : []
  return [...own, ...(plan.Plans ?? []).flatMap(scansOf)]
}
