import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { readResults } from '../../../src/client/read-results.ts'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'
import { startSubscriber } from '../subscriptions/support/subscriber.ts'

const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
/** Few bytes as Postgres keeps them, and 130 kB each as text. */
const longNumbers = (count: number) => `[${'1e130000,'.repeat(count)}0]`
const random = (length: number) =>
  Array.from({ length: Math.ceil(length / 36) }, () => randomUUID())
    .join('')
    .slice(0, length)

describe.each(usualServers)('a row that cannot be serialized (%s)', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver
  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true })
    ;({ database, stand, receiver } = its)
    return its.stop
  })

  it.each([
    ['metadata nested 13,000 deep', { metadata: nested(13_000) }],
    ['metadata nested 201 deep', { metadata: nested(201) }],
    ['metadata whose text is longer than 1 MiB', { metadata: JSON.stringify('x'.repeat(1024 * 1024)) }],
    ['metadata whose numbers are 1.3 MB as text', { metadata: longNumbers(10) }],
    ['a model of 256 characters', { model: 'x'.repeat(256) }],
    ['a key_name of 12,000 characters', { key_name: random(12_000) }],
  ])('is refused: %s', async (_, row) => {
    const { metadata, model, key_name }: { metadata?: string; model?: string; key_name?: string } = row
    const written = database.sql`insert into mediadock.requests (request_id, model, key_name, metadata)
      values (${randomUUID()}, ${model ?? null}, ${key_name ?? null}, ${metadata ?? null}::text::jsonb)`
    await expect(written).rejects.toMatchObject({ code: '23514' })
  })

  it.each([
    ['tracked_at', 'infinity'],
    ['tracked_at', '0001-06-01 BC'],
    ['tracked_at', '294276-12-31'],
    ['created_at', '-infinity'],
    ['completed_at', '9999-01-01 00:00:00+00'],
    ['next_poll_at', '-infinity'],
    ['next_poll_at', '294276-12-31'],
    ['polled_at', 'infinity'],
    ['doubt_poll_at', '-infinity'],
    ['polls', '-1'],
  ])('is refused with %s %s', async (column, value) => {
    const written = database.sql.unsafe(
      `insert into mediadock.requests (request_id, ${column}) values (gen_random_uuid(), '${value}')`,
    )
    await expect(written).rejects.toMatchObject({ code: '23514' })
  })

  it('is refused without an end time', async () => {
    const written = database.sql`insert into mediadock.requests (request_id, status, source, landed_at) values (${randomUUID()}, 'FAILED', 'webhook', 'infinity')`
    await expect(written).rejects.toMatchObject({ code: '23514' })
  })

  it('does not result from the longest names and deepest metadata allowed', async () => {
    await database.sql`insert into mediadock.requests (request_id, model, key_name, metadata)
      values (${randomUUID()}, ${'ü'.repeat(255)}, ${'😀'.repeat(255)}, ${nested(200)}::text::jsonb)`
    const body = { request_id: randomUUID(), metadata: { a: JSON.parse(nested(195)) } }
    expect((await call(receiver, 'POST /api/requests', { body })).status).toBe(201)
  })

  it('is refused by the API with the reason', async () => {
    const raw = `{"request_id":"${randomUUID()}","metadata":{"n":[${'1e308,'.repeat(60_000)}1]}}`
    const { status, json } = await call(receiver, 'POST /api/requests', { raw })
    expect({ status, code: json.error.code }).toEqual({ status: 422, code: 'not_storable' })
  })

  it('lands with shortened texts if the provider sends longer ones', async () => {
    const [long, audio] = [failed(), okAudio()]
    const error = { code: 'c'.repeat(300), message: `${'m'.repeat(3998)}😀😀😀` }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify({ ...JSON.parse(long.body.toString()), error })))
    const { payload, ...rest } = JSON.parse(audio.body.toString())
    await deliver(
      receiver.webhookUrl,
      Buffer.from(JSON.stringify({ ...rest, payload: { ...payload, model: 'a'.repeat(500) } })),
    )
    const rowOf = (id: string) =>
      eventually(
        async () =>
          (
            await database.sql`select model, error_code, error_message from mediadock.results where request_id = ${id}`
          )[0],
      )
    expect(await rowOf(long.requestId)).toMatchObject({
      error_code: `${'c'.repeat(254)}…`,
      error_message: `${'m'.repeat(3998)}\ufffd…`,
    })
    expect(await rowOf(audio.requestId)).toMatchObject({ model: `${'a'.repeat(254)}…` })
  })

  it('lands without the times of the provider that the columns refuse', async () => {
    const id = randomUUID()
    const times = { created_at: '1000-01-01T00:00:00+00:01', completed_at: '9998-12-31T23:59:59Z' }
    stand.answer((asked, _req, res) => json(res, 200, { ...imageResult(asked), ...times }))
    await call(receiver, 'POST /api/requests', { body: { request_id: id, key_name: 'live' } })
    await call(receiver, `POST /api/requests/${id}/reconcile`)
    const [row] =
      await database.sql`select status, created_at, completed_at from mediadock.requests where request_id = ${id}`
    expect(row).toEqual({ status: 'COMPLETED', created_at: null, completed_at: new Date(times.completed_at) })
  })

  describe('from a release without limits', () => {
    /** Between two others: one that Postgres cannot write, and one that JavaScript cannot. */
    const bad: Record<string, string> = { [randomUUID()]: nested(13_000), [randomUUID()]: nested(8000) }
    const good: string[] = [randomUUID(), randomUUID()]
    const ids = [...good.slice(0, 1), ...Object.keys(bad), ...good.slice(1)]
    const label = randomUUID()
    let before = 0

    beforeAll(async () => {
      const { sql } = database
      await sql`alter table mediadock.requests disable trigger requests_metadata`
      await eventually(async () => (await sql`select from mediadock.feed`).length === 3)
      before = Number((await sql`select max(position) as head from mediadock.feed`)[0]?.['head'])
      for (const id of ids) {
        await sql`insert into mediadock.requests (request_id, status, landed_at, source, metadata)
          values (${id}, 'FAILED', now(), 'webhook', ${bad[id] ?? JSON.stringify({ label })}::text::jsonb)`
      }
      await sql`insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
        select greatest(${before}::bigint, (extract(epoch from now()) * 1000000)::bigint) + n, now(), id, 2, true
        from unnest(${ids}::uuid[]) with ordinality as r (id, n)`
    })

    const asExpected = ids.map((id) =>
      good.includes(id)
        ? { position: expect.any(Number), request_id: id, status: 'FAILED', result: { metadata: { label } } }
        : {
            position: expect.any(Number),
            request_id: id,
            error: { code: 'unreadable', message: expect.stringMatching(/cannot be written (?:out|as JSON) .*: read/) },
          },
    )

    it('is an error at its position in the feed, as JSON and as a stream', async () => {
      const read: unknown[] = []
      for (let after = before; read.length < ids.length;) {
        const { status, json } = await call(receiver, `GET /api/feed?after=${after}`)
        expect(status).toBe(200)
        read.push(...json.data)
        after = json.next_after
      }
      expect(read).toMatchObject(asExpected)
      expect(Object.keys(read[1] ?? {})).toEqual(['position', 'request_id', 'error'])

      const cut = new AbortController()
      const stream = await fetch(new URL(`api/feed?after=${before}`, receiver.internalUrl), {
        headers: { accept: 'text/event-stream' },
        signal: cut.signal,
      })
      let text = ''
      for await (const chunk of stream.body ?? []) {
        text += Buffer.from(chunk).toString()
        if (text.includes(good[1] ?? '')) break
      }
      cut.abort()
      const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data))
      expect(events).toMatchObject(asExpected)
    })

    it.each(['over HTTP', 'by SQL'])('is an error item of readResults, %s', async (how) => {
      // Postgres overflows its stack at another depth than JavaScript.
      const sql = postgres(database.url, { max: 1, onnotice: () => {}, connection: { max_stack_depth: 200 } })
      onTestFinished(() => sql.end({ timeout: 1 }))
      const read: unknown[] = []
      const from = how === 'by SQL' ? { sql } : { url: receiver.internalUrl }
      for await (const change of readResults({ from, after: before, signal: AbortSignal.timeout(20_000) })) {
        if (read.push(change) === ids.length) break
      }
      expect(read).toMatchObject(asExpected)
    })

    it('is posted to subscriptions as an error, and later changes follow', async () => {
      const subscriber = await startSubscriber()
      await database.sql`insert into mediadock.subscriptions (name, url, secret, position) values ('it', ${subscriber.url}, 'whsec_of_the_subscription', ${before})`
      onTestFinished(async () => void (await database.sql`delete from mediadock.subscriptions`))
      await eventually(() => subscriber.posted.length === ids.length)
      expect(subscriber.posted.map(({ body }) => JSON.parse(body))).toMatchObject(asExpected)
    })

    it('is in lists and on its own page, with an error in place of its metadata', async () => {
      const listed = await call(receiver, 'GET /api/requests?limit=100')
      expect(listed.json.data.map(({ id }: { id: string }) => id)).toEqual(expect.arrayContaining(ids))
      for (const id of Object.keys(bad)) {
        for (const operation of [`GET /api/requests/${id}`, `GET /api/results/${id}`]) {
          expect(await call(receiver, operation)).toMatchObject({
            status: 200,
            json: { metadata: { error: { code: 'unreadable' } } },
          })
        }
        expect((await call(receiver, `GET /requests/${id}`)).status).toBe(200)
        // An exact id opens its page.
        expect((await call(receiver, `GET /search?q=${id}`)).status).toBe(303)
      }
    })
  })
})
