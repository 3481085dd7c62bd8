import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { call, deliverAndSettle } from '../receiver/api/calls.ts'
import type { TestDatabase } from '../support/database.ts'
import type { TestReceiver } from '../support/receiver.ts'
import { failed } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { readPage } from './support/read-page.ts'
import { completed, notified, pictures, running, startWorld, track, type World } from './support/request-world.ts'

// Tests without a browser. Those with one are in release/browser/request.test.ts.

let database: TestDatabase
let world: World
let receiver: TestReceiver
const nasty = '<img src=x onerror="document.title=\'owned\'">'
const failedId = randomUUID()

beforeAll(async () => {
  world = await startWorld()
  const its = await withReceiver({
    providerUrl: world.url,
    settings: { webhookPublicUrl: 'https://hooks.test/webhooks' },
  })
  ;({ database, receiver } = its)
  await deliverAndSettle(its, failed(failedId), { webhookId: 'wh_failed' })
  return its.stop
})
afterAll(async () => {
  await world.close()
})

const deliverTo = () => ({ receiver, database })
const read = (path: string, method?: string) => readPage(`${receiver.internalUrl}${path}`, method)
const asked = (id: string) => read(`requests/${id}/ask`, 'POST')

describe('Ask the provider now', () => {
  it('completes a result with data that the webhook lacked', async () => {
    const id = randomUUID()
    await deliverAndSettle(deliverTo(), notified(id, { images: [{ url: world.media('0.svg') }] }), {
      webhookId: 'wh_first_only',
    })
    expect((await read(`requests/${id}`)).main).toContain('1 so far')
    world.says(id, completed(id, pictures(world, 3)))
    expect((await asked(id)).said.status).toContain('result lists 3 media items')
  })

  it('confirms a complete webhook', async () => {
    const { requestId: id, body } = failed()
    await deliverAndSettle(deliverTo(), { requestId: id, body }, { webhookId: 'wh_whole' })
    world.says(id, {
      status: 200,
      body: { request_id: id, status: 'FAILED', error: { code: 'GENERATION_FAILED', message: 'no' }, cost: 0 },
    })
    expect((await asked(id)).said.status).toContain('agrees with the webhook: FAILED')
  })

  it.each([
    ['it has not ended', (id: string) => running(id), 'status', 'it is still running at the provider'],
    [
      'nobody knows it',
      () => ({
        status: 404,
        body: { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } },
      }),
      'alert',
      'no key that was tried knows it',
    ],
    ['the provider fails', () => ({ status: 500, body: {} }), 'alert', 'the provider gave no usable answer'],
    [
      'the answer is none',
      () => ({ status: 200, body: { status: nasty } }),
      'alert',
      'does not follow the specification',
    ],
    [
      'the key rests',
      () => ({ status: 429, body: {}, headers: { 'retry-after': '1' } }),
      'alert',
      'the provider answered 429',
    ],
  ] as const)('says why nothing changed where %s', async (_what, says, role, words) => {
    const id = await track(database, { ago: 200 })
    world.says(id, says(id))
    const { said, title, main } = await asked(id)
    expect(said[role]).toContain(words)
    expect(title).toMatch(/^Request /)
    expect(main).not.toContain('<img')
    await database.sql`delete from mediadock.call_budgets`
  })

  it('reports a lock of another transaction', async () => {
    const id = await track(database, { ago: 200 })
    await database.sql.begin(async (sql) => {
      await sql`select from mediadock.requests where request_id = ${id} for update`
      expect((await asked(id)).said.alert).toContain('another transaction holds this request')
    })
  })

  it('does not report an answer that a newer one has replaced', async () => {
    const id = await track(database, { ago: 200 })
    world.says(id, running(id))
    const { url } = await asked(id)
    world.says(id, completed(id, pictures(world, 1)))
    await call(receiver, `POST /api/requests/${id}/reconcile`)
    const { said } = await read(url.slice(receiver.internalUrl.length))
    expect(said.status).toContain('A newer poll has begun since')
  })

  it.each(['poll=owned', `poll=${encodeURIComponent(nasty)}`, 'poll=landed&at=never'])(
    'takes no text from the address: %s',
    async (query) => {
      const { title, main } = await read(`requests/${failedId}?${query}`)
      expect(title).toBe(`Request ${failedId.slice(0, 8)} · mediadock`)
      expect(main).not.toContain('owned')
    },
  )
})

describe('an untracked id', () => {
  it.each([
    ['the beginning of one', failedId.slice(0, 8), 'A request id is a uuid'],
    ['hostile text', encodeURIComponent(nasty), '&lt;img src=x'],
    ['an unknown complete id', randomUUID(), 'No request has the id'],
  ])('%s: 404 with advice', async (_what, id, words) => {
    const { status, title, said } = await read(`requests/${id}`)
    expect([status, title]).toEqual([404, 'Not found · mediadock'])
    expect(said.alert).toContain(words)
  })

  it('an unknown complete id says how to track it', async () => {
    expect((await read(`requests/${randomUUID()}`)).main).toContain('/api/requests')
  })

  it('makes no call to the provider', async () => {
    const { status } = await call(receiver, `POST /requests/${randomUUID()}/ask`)
    expect(status).toBe(404)
  })
})
