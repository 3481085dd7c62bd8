import fs from 'node:fs/promises'
import path from 'node:path'
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as worker from '../../src/receiver/worker.ts'
import { createTestDatabase, testServers, withTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { createTestWorker, store } from '../support/worker.ts'
import { deliver, okAudio, okImage } from '../support/webhooks.ts'

const requestId = '11111111-2222-4333-8444-555555555555'

describe.each(testServers)('docs/reading-results.md (%s)', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver
  let statements: string[]

  beforeAll(async () => {
    const page = await fs.readFile(path.resolve(import.meta.dirname, '../../docs/reading-results.md'), 'utf8')
    statements = [...page.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, text]) => text ?? '')
    database = await createTestDatabase(server)
    stand = await startProviderStand()
    receiver = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
  })
  afterAll(async () => {
    await receiver.stop()
    await stand.close()
    for (const role of ['shop', 'lander', 'media_reader', 'media_tracker']) await database.sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`).catch(() => {})
    await database.drop()
  })

  /** The one printed statement that has these words in it, run as it stands, by the role that the page says. */
  async function run(words: string, role?: string) {
    const found = statements.filter((statement) => statement.includes(words))
    expect(found).toHaveLength(1)
    return database.sql.unsafe(role === undefined ? (found[0] ?? '') : `set role ${role}; ${found[0]}; reset role`)
  }

  const as = (role: string, statement: string) => database.sql.unsafe(`set role ${role}; ${statement}; reset role`)

  it('every statement does what the page says', async () => {
    expect(statements).toHaveLength(8)
    await run('create role media_reader')
    await run('create role media_tracker')
    await run('create role shop')
    await run('create table shop.artworks', 'shop')
    await run('insert into mediadock.requests (request_id', 'media_tracker')

    const heard: string[] = []
    expect(statements.some((statement) => statement.trim() === 'listen mediadock_results;')).toBe(true)
    await database.sql.listen('mediadock_results', (payload) => heard.push(payload))

    // First only what the webhook carried, then the full result.
    stand.answer((_id, _req, res) => json(res, 500, {}))
    await deliver(receiver.webhookUrl, okImage(requestId).body)
    const artwork = async () => (await database.sql`select * from shop.artworks`)[0]
    expect(await eventually(artwork)).toEqual({ request_id: requestId, order_id: '42', status: 'COMPLETED', urls: [`https://media.test/${requestId}.png`] })

    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    await receiver.deps.background.reconcileOne(requestId)
    expect(Object(await artwork()).urls).toEqual([`https://media.test/${requestId}-0.png`, `https://media.test/${requestId}-1.png`])

    const rows = await run('left join mediadock.media')
    expect(rows.map((row) => [row['status'], row['media_complete'], row['position'], row['width']])).toEqual([
      ['COMPLETED', true, 0, 640],
      ['COMPLETED', true, 1, 640],
    ])
    expect(await run("interval '10 minutes'")).toHaveLength(1)
    await eventually(() => heard.length === 2)
    expect(heard.map((payload) => JSON.parse(payload).media_complete)).toEqual([false, true])
  })

  it('the trigger needs nothing more of a landing role that may do nothing in its schema', async () => {
    await database.sql.unsafe(`
      create role lander login password 'x';
      grant usage on schema mediadock to lander;
      grant select, insert, update, delete on all tables in schema mediadock to lander`)
    await expect(as('lander', 'select from shop.artworks')).rejects.toThrow(/permission denied for schema shop/)
    const url = new URL(database.url)
    url.username = 'lander'
    url.password = 'x'
    const deps = createTestWorker({ databaseUrl: url.href })
    // The receiver beside it may take it first.
    const sample = okAudio(randomUUID())
    await receiver.stop()
    await store(deps.db, [sample.body])
    deps.setNow(new Date(Date.now() + 1000))
    expect(await worker.runOnce(deps, 'direct')).toMatchObject({ claimed: 1, landed: 1, failed: 0 })
    const [row] = await database.sql`select urls from shop.artworks where request_id = ${sample.requestId}`
    expect(row).toEqual({ urls: [`https://media.test/${sample.requestId}.mp3`] })
  })

  it('the reading role reads both and nothing else, and a role without TRIGGER makes none', async () => {
    await as('media_reader', 'select count(*) from mediadock.results')
    await as('media_reader', 'select count(*) from mediadock.media')
    for (const table of ['deliveries', 'requests', 'quarantine']) {
      await expect(as('media_reader', `select count(*) from mediadock.${table}`)).rejects.toThrow(/permission denied/)
    }
    const trigger = 'create trigger x after insert on mediadock.requests for each row execute function shop.take_result()'
    await database.sql`revoke trigger on mediadock.requests from shop`
    await expect(as('shop', trigger)).rejects.toThrow(/permission denied for table requests/)
  })

  it('the tracking role cannot say how a request ended', async () => {
    const insert = (columns: string, values: string) => as('media_tracker', `insert into mediadock.requests (request_id, ${columns}) values (gen_random_uuid(), ${values})`)
    await insert('model', "'vela'")
    await expect(insert('status, landed_at', "'COMPLETED', now()")).rejects.toThrow(/permission denied/)
    await expect(insert('confirmed_at', 'now()')).rejects.toThrow(/permission denied/)
    await expect(as('media_tracker', "update mediadock.requests set model = 'x'")).rejects.toThrow(/permission denied/)
  })
})

describe.each(testServers)('on %s, a role that may write all of the table', (server) => {
  it.each([
    ['COMPLETED without media', "status, landed_at, source, media_complete", "'COMPLETED', now(), 'webhook', true", /COMPLETED without a row of mediadock.media/],
    ['terminal without having landed', 'status', "'FAILED'", /requests_landed/],
    ['landed and not terminal', 'landed_at', 'now()', /requests_landed/],
    ['confirmed and not terminal', 'confirmed_at', 'now()', /requests_landed/],
  ])('cannot write what is %s', async (_what, columns, values, message) => {
    const { sql } = await withTestDatabase(server)
    const write = sql.unsafe(`insert into mediadock.requests (request_id, ${columns}) values (gen_random_uuid(), ${values})`)
    await expect(write).rejects.toThrow(message)
  })

  it('cannot make one COMPLETED afterwards', async () => {
    const { sql } = await withTestDatabase(server)
    await sql`insert into mediadock.requests (request_id) values (${requestId})`
    await expect(sql`update mediadock.requests set status = 'COMPLETED', landed_at = now()`).rejects.toThrow(/COMPLETED without a row/)
  })
})

it('an existing database migrates: what says COMPLETED and has no media is open again', async () => {
  const { sql } = await withTestDatabase()
  const undo = await sql.begin(async (tx) => {
    await tx`alter table mediadock.requests disable trigger user`
    await tx`alter table mediadock.requests drop constraint requests_landed`
    await tx`insert into mediadock.requests (request_id, status, landed_at, source) values (${requestId}, 'COMPLETED', now(), 'webhook'), (gen_random_uuid(), 'FAILED', null, null), (gen_random_uuid(), 'FAILED', now(), 'webhook')`
    return fs.readFile(path.resolve(import.meta.dirname, '../../drizzle/receiver/0010_landed_with_media.sql'), 'utf8')
  })
  await sql.unsafe(undo.split('--> statement-breakpoint').slice(0, 2).join(';'))
  expect([...(await sql`select status, landed_at is null as open, next_poll_at is not null as asked from mediadock.requests order by tracked_at, status`)]).toEqual([
    { status: 'FAILED', open: false, asked: false },
    { status: 'IN_QUEUE', open: true, asked: true },
    { status: 'IN_QUEUE', open: true, asked: true },
  ])
})
