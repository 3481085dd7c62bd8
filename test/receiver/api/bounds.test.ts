import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { usualServers, type TestDatabase } from '../../support/database.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, follow } from './calls.ts'

const mebibyte = 1024 * 1024
/** Requests of 2.7 MB each: several pages of them. */
const large = 8

describe.each(usualServers)('answers are bounded in bytes, on the %s server', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  const crowded = randomUUID()
  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    const { sql } = database
    // Compresses to nearly nothing: what the table weighs says nothing about the answer.
    await sql`
      insert into mediadock.requests (request_id, status, model, output, media_complete, metadata, error_message, error_code, tracked_at, landed_at)
      select gen_random_uuid(), 'FAILED', repeat('m', 255), null, true, jsonb_build_object('n', n, 'text', repeat('x', 900000)), repeat('e', 4000), 'GENERATION_FAILED',
        now() - n * interval '1 second', now() - n * interval '1 second' from generate_series(1, ${large}) n`
    await sql`insert into mediadock.media (request_id, kind, position, url) select ${crowded}, 'image', n, 'https://media.test/' || repeat('u', 400) || n from generate_series(0, 86999) n`
    await sql`insert into mediadock.requests (request_id, status, media_complete, landed_at) values (${crowded}, 'COMPLETED', true, now())`
    return its.stop
  })

  it.each(['/api/stats', '/', '/now', '/requests', '/requests?limit=200'])('GET %s', async (path) => {
    const { status, text } = await call(receiver, `GET ${path}`, {
      headers: { accept: path.startsWith('/api') ? 'application/json' : 'text/html' },
    })
    expect(status).toBe(200)
    expect(text.length).toBeLessThan(mebibyte)
  })

  it('a page of requests has fewer rows if they are large, and the cursor reaches all of them', async () => {
    const first = await call(receiver, 'GET /api/requests?limit=200')
    expect(first.text.length).toBeLessThan(6 * mebibyte)
    expect(first.json.data.length).toBeGreaterThan(1)
    expect(first.json.next_cursor).not.toBeNull()
    const ids = await follow(receiver, '/api/requests?limit=200')
    expect(ids).toHaveLength(large + 1)
    expect(new Set(ids).size).toBe(large + 1)
  })

  it('the page of a request with very many media', async () => {
    for (const path of [`/api/requests/${crowded}`, `/requests/${crowded}`])
      expect((await call(receiver, `GET ${path}`)).text.length).toBeLessThan(mebibyte)
  })

  it('ends a replay of many early if its changes are large, with a cursor to continue', async () => {
    const { sql } = database
    const images = Array.from({ length: 100 }, (_, n) => ({ url: `https://media.test/${n}/${'u'.repeat(8000)}` }))
    const bodies = Array.from({ length: 12 }, () =>
      JSON.stringify({
        request_id: randomUUID(),
        status: 'OK',
        payload: { model: 'aurora-image', output: { images }, cost: 4 },
      }),
    )
    await sql`
      insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body, status)
      select gen_random_uuid(), 'wh_large', 'live', now(), now() - n * interval '1 second', '{}', convert_to(body, 'UTF8'), 'OK'
      from unnest(${bodies}::text[]) with ordinality as b (body, n)`
    let [replayed, calls, changed]: [number, number, number] = [0, 0, 0]
    let cursor: string | null = null
    do {
      const answer = await call(receiver, 'POST /api/deliveries/replay', {
        body: { filter: { state: 'processed' }, dry_run: true, ...(cursor !== null && { cursor }) },
      })
      expect(answer.status).toBe(200)
      expect(answer.text.length).toBeLessThan(9 * mebibyte)
      expect(answer.json.count).toBe(12)
      replayed += answer.json.replayed
      changed += answer.json.changes.length
      calls += 1
      cursor = answer.json.next_cursor
    } while (cursor !== null)
    expect({ replayed, changed }).toEqual({ replayed: 12, changed: 12 })
    expect(calls).toBeGreaterThan(1)
  })

  it('deliveries and arrivals contain no more of related rows than fits', async () => {
    const { sql } = database
    const [request] = await sql`select request_id from mediadock.requests where length(model) > 200 limit 1`
    await sql`
      insert into mediadock.deliveries (id, webhook_id, request_id, key_name, signed_at, received_at, headers, body, status)
      select gen_random_uuid(), 'wh_many', ${request?.['request_id']}, 'live', now(), now(), '{}', '', 'OK' from generate_series(1, 300)`
    for (const path of [
      `/api/deliveries?request_id=${request?.['request_id']}&limit=200`,
      `/deliveries?request_id=${request?.['request_id']}&limit=200`,
    ])
      expect((await call(receiver, `GET ${path}`)).text.length).toBeLessThan(2 * mebibyte)
  })
})
