import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, usualServers, withTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, okImage } from '../support/webhooks.ts'

/** The roles of ops/roles.sql, and those that the pages make. */
const roles = [
  'mediadock_migrate',
  'mediadock_run',
  'mediadock_read',
  'mediadock_provider_migrate',
  'mediadock_provider_run',
  'shop',
  'media_reader',
  'media_tracker',
  'gallery',
]

const requestId = '11111111-2222-4333-8444-555555555555'

describe.each(usualServers)('the statements of docs/results.md, feed.md and submitting.md (%s)', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver
  let statements: string[]

  beforeAll(async () => {
    const read = (page: string) => fs.readFile(path.resolve(import.meta.dirname, '../../docs', page), 'utf8')
    const pages = await Promise.all(['results.md', 'feed.md', 'submitting.md', '../README.md'].map(read))
    statements = [...pages.join('\n').matchAll(/```sql\n([\s\S]*?)```/g)].map(([, text]) => text ?? '')
    database = await createTestDatabase(server)
    stand = await startProviderStand()
    await database.sql.unsafe(await fs.readFile(path.resolve(import.meta.dirname, '../../ops/roles.sql'), 'utf8'))
    await database.sql.unsafe(`
      alter schema mediadock owner to mediadock_migrate;
      alter table mediadock.requests owner to mediadock_migrate;
      alter table mediadock.media owner to mediadock_migrate;
      alter role mediadock_run password 'x'`)
    const url = new URL(database.url)
    url.username = 'mediadock_run'
    url.password = 'x'
    receiver = await startTestReceiver({ databaseUrl: url.href, providerUrl: stand.url })
  })
  afterAll(async () => {
    await receiver.stop()
    await stand.close()
    for (const role of roles) await database.sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`)
    await database.drop()
  })

  /** Runs the one printed statement that contains these words, as printed, by the role that the page names. */
  async function run(words: string, role?: string) {
    const found = statements.filter((statement) => statement.includes(words))
    expect(found).toHaveLength(1)
    return database.sql.unsafe(role === undefined ? (found[0] ?? '') : `set role ${role}; ${found[0]}; reset role`)
  }

  const as = (role: string, statement: string) => database.sql.unsafe(`set role ${role}; ${statement}; reset role`)

  it('every statement works as the page says', async () => {
    expect(statements).toHaveLength(15)
    await run('create role media_reader')
    await run('create role media_tracker')
    await database.sql.unsafe(
      'create role gallery nologin in role media_reader; create schema gallery authorization gallery',
    )
    await run('create table gallery.pictures', 'gallery')
    await run('insert into mediadock.feed_consumers', 'gallery')
    await run('create role shop')
    await run('create table shop.artworks', 'mediadock_migrate')
    await run('insert into mediadock.requests (request_id', 'media_tracker')

    const notices: string[] = []
    expect(statements.some((statement) => statement.trim() === 'listen mediadock_results;')).toBe(true)
    await database.sql.listen('mediadock_results', (payload) => notices.push(payload))

    // First only what the webhook carried, then the full result.
    stand.answer((_id, _req, res) => json(res, 500, {}))
    await deliver(receiver.webhookUrl, okImage(requestId).body)
    const artwork = async () => (await database.sql`select * from shop.artworks`)[0]
    expect(await eventually(artwork)).toEqual({
      request_id: requestId,
      order_id: '42',
      status: 'COMPLETED',
      urls: [`https://media.test/${requestId}.png`],
    })

    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    await receiver.deps.background.reconcileOne(requestId)
    expect(Object(await artwork()).urls).toEqual([
      `https://media.test/${requestId}-0.png`,
      `https://media.test/${requestId}-1.png`,
    ])

    expect(await run('r.media_complete, m.kind, m.position, m.url')).toHaveLength(2)
    const rows = await run('r.media_complete, r.metadata')
    expect(rows.map((row) => [row['status'], row['media_complete'], row['position'], row['width']])).toEqual([
      ['COMPLETED', true, 0, 640],
      ['COMPLETED', true, 1, 640],
    ])
    const changes = await eventually(async () => {
      const read = await run('select mediadock.still_kept(0)')
      return read.length === 2 && read
    })
    expect(changes.map((row) => [row['request_id'], row['status'], row['media_complete']])).toEqual([
      [requestId, 'COMPLETED', false],
      [requestId, 'COMPLETED', true],
    ])
    const head = changes[1]?.['position']
    expect([...(await run('as head from mediadock.feed'))]).toEqual([{ head }])
    expect([...(await run('as changes_behind'))]).toEqual([
      { name: 'gallery', changes_behind: '2', lag: expect.any(String) },
    ])
    // With the rights of a service: all of a page, once.
    await run('with place as', 'gallery')
    expect([...(await database.sql`select * from gallery.pictures`)]).toEqual([
      { request_id: requestId, status: 'COMPLETED', urls: Object(await artwork()).urls },
    ])
    expect([...(await database.sql`select name, position from mediadock.feed_consumers`)]).toEqual([
      { name: 'gallery', position: head },
    ])
    expect([...(await run('with place as'))]).toEqual([])
    expect([...(await run('as changes_behind'))]).toEqual([{ name: 'gallery', changes_behind: '0', lag: null }])
    expect(statements.some((statement) => statement.trim() === 'listen mediadock_feed;')).toBe(true)
    await eventually(() => notices.length === 2)
    expect(notices.map((payload) => JSON.parse(payload).media_complete)).toEqual([false, true])
  })

  it('the reading role reads all three and nothing else', async () => {
    for (const table of ['results', 'media', 'feed'])
      await as('media_reader', `select count(*) from mediadock.${table}`)
    for (const table of ['deliveries', 'requests', 'quarantine', 'changes', 'feed_entries']) {
      await expect(as('media_reader', `select count(*) from mediadock.${table}`)).rejects.toThrow(/permission denied/)
    }
  })

  const trigger = (when: string) =>
    `create trigger x ${when} on mediadock.requests for each row execute function shop.take_result()`
  const replaced = `create or replace function shop.take_result() returns trigger language plpgsql as 'begin delete from mediadock.deliveries; return null; end'`

  // Each of these would run as the role that lands, with all its rights.
  it.each([
    ['make a trigger that runs before', trigger('before insert'), /permission denied for table requests/],
    ['make a trigger that runs after', trigger('after insert'), /permission denied for table requests/],
    ['drop the trigger', 'drop trigger shop_take_result on mediadock.requests', /must be owner of relation requests/],
    ['replace the function', replaced, /permission denied for schema shop/],
    ['alter the function', 'alter function shop.take_result() reset search_path', /must be owner of function/],
    [
      'make a function',
      'create function shop.x() returns int language sql return 1',
      /permission denied for schema shop/,
    ],
    [
      'make a function beside the tables',
      'create function mediadock.x() returns int language sql return 1',
      /permission denied for schema mediadock/,
    ],
    [
      'give the table a trigger',
      'create trigger x before insert on shop.artworks for each row execute function shop.take_result()',
      /permission denied for table artworks/,
    ],
    [
      'give the table a constraint',
      'alter table shop.artworks add check (order_id > 0)',
      /must be owner of table artworks/,
    ],
    ['write the table', 'update shop.artworks set order_id = 1', /permission denied for table artworks/],
    ['read deliveries', 'select from mediadock.deliveries', /permission denied/],
  ])("the service's role reads its table, and cannot %s", async (_what, statement, message) => {
    await as('shop', 'select count(*) from shop.artworks')
    // Not for want of a way into the schema of the table.
    await database.sql`grant usage on schema mediadock to shop`
    await expect(as('shop', statement)).rejects.toThrow(message)
  })

  it('the landing role has no more rights than the function needs', async () => {
    await expect(as('mediadock_run', 'delete from shop.artworks')).rejects.toThrow(
      /permission denied for table artworks/,
    )
    await expect(as('mediadock_run', 'create table shop.x ()')).rejects.toThrow(/permission denied for schema shop/)
  })

  it('the tracking role cannot set a terminal state', async () => {
    const insert = (columns: string, values: string) =>
      as(
        'media_tracker',
        `insert into mediadock.requests (request_id, ${columns}) values (gen_random_uuid(), ${values})`,
      )
    await insert('model', "'vela'")
    await expect(insert('status, landed_at', "'COMPLETED', now()")).rejects.toThrow(/permission denied/)
    await expect(insert('confirmed_at', 'now()')).rejects.toThrow(/permission denied/)
    await expect(as('media_tracker', "update mediadock.requests set model = 'x'")).rejects.toThrow(/permission denied/)
  })
})

describe.each(usualServers)('on %s, a role with all rights to the table', (server) => {
  it.each([
    [
      'COMPLETED without media',
      'status, landed_at, source, media_complete',
      "'COMPLETED', now(), 'webhook', true",
      /COMPLETED without a row of mediadock.media/,
    ],
    ['terminal without having landed', 'status', "'FAILED'", /requests_landed/],
    ['landed and not terminal', 'landed_at', 'now()', /requests_landed/],
    ['confirmed and not terminal', 'confirmed_at', 'now()', /requests_landed/],
  ])('cannot write a row that is %s', async (_what, columns, values, message) => {
    const { sql } = await withTestDatabase(server)
    const write = sql.unsafe(
      `insert into mediadock.requests (request_id, ${columns}) values (gen_random_uuid(), ${values})`,
    )
    await expect(write).rejects.toThrow(message)
  })

  it('cannot change a row to COMPLETED', async () => {
    const { sql } = await withTestDatabase(server)
    await sql`insert into mediadock.requests (request_id) values (${requestId})`
    await expect(sql`update mediadock.requests set status = 'COMPLETED', landed_at = now()`).rejects.toThrow(
      /COMPLETED without a row/,
    )
  })
})
