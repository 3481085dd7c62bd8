import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, okImage } from '../support/webhooks.ts'

const requestId = '11111111-2222-4333-8444-555555555555'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver
let statements: string[]

beforeAll(async () => {
  const page = await fs.readFile(path.resolve(import.meta.dirname, '../../docs/reading-results.md'), 'utf8')
  statements = [...page.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, text]) => text ?? '')
  database = await createTestDatabase()
  stand = await startProviderStand()
  receiver = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
})
afterAll(async () => {
  await receiver.stop()
  await stand.close()
  await database.sql`drop owned by media_reader`.catch(() => {})
  await database.sql`drop role if exists media_reader`.catch(() => {})
  await database.drop()
})

/** The one printed statement that has these words in it, run as it stands. */
async function run(words: string) {
  const found = statements.filter((statement) => statement.includes(words))
  expect(found).toHaveLength(1)
  return database.sql.unsafe(found[0] ?? '')
}

it('every statement of docs/reading-results.md does what the page says', async () => {
  expect(statements).toHaveLength(6)
  await run('create role media_reader')
  await run('create schema shop')
  await run('insert into mediadock.requests')

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

it('the reading role reads both and nothing else', async () => {
  const as = (statement: string) => database.sql.unsafe(`set role media_reader; ${statement}; reset role`)
  await as('select count(*) from mediadock.results')
  await as('select count(*) from mediadock.media')
  for (const table of ['deliveries', 'requests', 'quarantine']) {
    await expect(as(`select count(*) from mediadock.${table}`)).rejects.toThrow(/permission denied/)
    await database.sql`reset role`
  }
})
