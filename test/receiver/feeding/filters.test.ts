import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { readResults, type FeedFilter, type ReadOptions } from '../../../src/client/read-results.ts'
import { walkedChanges } from '../../../src/receiver/feeding/feed-walk.ts'
import { usualServers, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'

type Row = {
  name: string
  status?: number
  complete?: boolean
  key_name?: string
  model?: string
  sandbox?: boolean | null
  metadata?: object
}

/** The changes of the test, each of another result; the last is a submit that was refused after its 202. */
const rows = [
  { name: 'first link', complete: false, metadata: { user: 'u1' } },
  { name: 'whole', metadata: { user: 'u1', tags: ['a', 'b'] } },
  { name: 'of another key', key_name: 'second' },
  { name: 'of another model', model: 'lyra' },
  { name: 'of the sandbox', sandbox: true, metadata: { user: 'u1' } },
  { name: 'of nobody knows which', sandbox: null },
  { name: 'failed', status: 2, complete: false },
  { name: 'canceled', status: 3 },
  { name: 'refused', status: 4, complete: false, metadata: { user: 'u1' } },
] satisfies Row[]

const cases: { filter: FeedFilter; gets: string[] }[] = [
  { filter: {}, gets: rows.map(({ name }) => name) },
  { filter: { key_name: 'second' }, gets: ['of another key'] },
  { filter: { model: 'lyra' }, gets: ['of another model'] },
  { filter: { status: 'FAILED' }, gets: ['failed'] },
  { filter: { status: 'REFUSED' }, gets: ['refused'] },
  { filter: { sandbox: true }, gets: ['of the sandbox'] },
  {
    filter: { sandbox: false, metadata: { user: 'u1' } },
    gets: ['first link', 'whole', 'refused'],
  },
  { filter: { complete: false }, gets: ['first link'] },
  {
    filter: { complete: true, metadata: { user: 'u1' } },
    gets: ['whole', 'of the sandbox', 'refused'],
  },
  { filter: { metadata: { tags: ['b'] } }, gets: ['whole'] },
  {
    filter: {
      key_name: 'main',
      model: 'vela',
      complete: true,
      status: 'COMPLETED',
      metadata: { user: 'u1' },
    },
    gets: ['whole', 'of the sandbox'],
  },
]

/** Writes the results and their changes, as landing, submits and the sequencer do. */
async function change({ sql }: TestDatabase, changes: readonly Row[]): Promise<{ ids: string[]; positions: number[] }> {
  const given = changes.map(({ name: _name, ...row }, n) => ({
    id: randomUUID(),
    n,
    status: 1,
    complete: true,
    key_name: 'main',
    model: 'vela',
    sandbox: false,
    ...row,
  }))
  const written = await sql`
    with given as materialized (
      select * from jsonb_to_recordset(${JSON.stringify(given)}::text::jsonb) as g
        (id uuid, status int, complete boolean, key_name text, model text, sandbox boolean, metadata jsonb, n bigint)
    ),
    submits as (
      insert into mediadock.generations (idempotency_key, state, model, input, key_name, sandbox, metadata, created_at)
      select id, 'refused', model, '{}', key_name, sandbox, metadata, now() from given where status = 4
    ),
    landed as (
      insert into mediadock.requests
        (request_id, status, model, key_name, sandbox, metadata, landed_at, source, media_complete)
      select id, (array['FAILED', 'FAILED', 'CANCELED'])[status], model, key_name, sandbox, metadata, now(), 'webhook',
        complete from given where status <> 4
    )
    insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
    select greatest((select coalesce(max(position), 0) from mediadock.feed_entries),
      (extract(epoch from now()) * 1000000)::bigint) + n + 1, now(), id, status, complete from given
    returning position`
  return {
    ids: given.map(({ id }) => id),
    positions: written.map((row) => Number(row['position'])),
  }
}

describe.each(usualServers)('filters of the feed (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  let ids: string[]
  let before: number
  const nameOf = (item: { request_id: string | null; idempotency_key?: string | null }) =>
    rows[ids.indexOf(item.request_id ?? item.idempotency_key ?? '')]?.name

  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    const written = await change(database, rows)
    ;({ ids } = written)
    before = (written.positions[0] ?? 0) - 1
    return its.stop
  })

  const readers = {
    'over HTTP': (): ReadOptions['from'] => ({ url: receiver.internalUrl }),
    'by SQL': (): ReadOptions['from'] => ({ sql: database.sql }),
  }

  describe.each(Object.keys(readers) as (keyof typeof readers)[])('%s', (name) => {
    it.each(cases)('$filter gives $gets', async ({ filter, gets }) => {
      const got: unknown[] = []
      const ended = new AbortController()
      const reader = readResults({
        from: readers[name](),
        after: before,
        filter,
        signal: ended.signal,
      })
      const reading = (async () => {
        for await (const item of reader) got.push(nameOf(item))
      })()
      await eventually(() => reader.lag().isCaughtUp && got.length >= gets.length)
      ended.abort()
      await reading
      expect(got).toEqual(gets)
    })
  })

  it('answers an empty page with a later position after a bounded number of changes', async () => {
    const { positions } = await change(
      database,
      Array.from({ length: walkedChanges + 1 }, () => ({ name: '', key_name: 'third' })),
    )
    onTestFinished(
      async () => void (await database.sql`delete from mediadock.feed_entries where position >= ${positions[0] ?? 0}`),
    )
    const path = `GET /api/feed?after=${(positions[0] ?? 0) - 1}&key_name=nobody`
    expect((await call(receiver, path)).json).toEqual({
      data: [],
      next_after: positions[walkedChanges - 1],
      head: positions[walkedChanges],
    })
    // With wait it looks on until it is there.
    const [last] = (await change(database, [{ name: '', key_name: 'nobody' }])).positions
    const { json } = await call(receiver, `${path}&wait=30`)
    expect(json.data.map(({ position }: { position: number }) => position)).toEqual([last])
  })

  it("advances a stream's id past changes that do not match", async () => {
    const answer = await fetch(new URL(`api/feed?after=${before}&key_name=nobody`, receiver.internalUrl), {
      headers: { accept: 'text/event-stream' },
    })
    let text = ''
    for await (const chunk of answer.body ?? []) {
      text += Buffer.from(chunk).toString()
      if (text.includes('id: ')) break
    }
    expect(text).toContain(`id: ${(await call(receiver, `GET /api/feed?after=${before}`)).json.next_after}\n\n`)
    expect(text).not.toContain('data: ')
  })

  it.each([
    ['metadata=[1]', 'metadata: must be a JSON object, without NUL, lone surrogates or whole numbers from 2^53 on'],
    [
      `metadata=${encodeURIComponent('{"a":"\\u0000"}')}`,
      'metadata: must be a JSON object, without NUL, lone surrogates or whole numbers from 2^53 on',
    ],
    [
      `metadata={"order_id":9007199254740993}`,
      'metadata: must be a JSON object, without NUL, lone surrogates or whole numbers from 2^53 on',
    ],
    [
      `metadata={"order_id":1e999}`,
      'metadata: must be a JSON object, without NUL, lone surrogates or whole numbers from 2^53 on',
    ],
    ['sandbox=yes', 'sandbox: must be true or false'],
    ['status=IN_QUEUE', 'status: must be one of COMPLETED, FAILED, CANCELED, REFUSED'],
  ])('refuses %s', async (query, message) => {
    const { status, json } = await call(receiver, `GET /api/feed?${query}`)
    expect({ status, ...json.error }).toMatchObject({
      status: 400,
      code: 'invalid_filter',
      message,
    })
  })

  it.each([
    ['sandbox=true', ['of the sandbox']],
    ['complete=false', ['first link']],
    [`metadata=${encodeURIComponent('{"tags":["b"]}')}`, ['whole']],
    [`sandbox=false&metadata=${encodeURIComponent('{"user":"u1"}')}`, ['first link', 'whole']],
  ])('GET /api/requests?%s finds %s', async (query, names) => {
    await database.sql`
      update mediadock.requests set status = 'IN_QUEUE', landed_at = null, source = null
      where request_id = ${ids[0] ?? ''}`
    const { json } = await call(receiver, `GET /api/requests?${query}`)
    expect(json.data.map(nameOf).toSorted()).toEqual(names)
  })
})
