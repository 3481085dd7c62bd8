import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { sql, type SQL } from '../../../src/platform/postgres/drizzle.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { beginCall, open } from '../../../src/receiver/submitting/generations.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json } from '../../support/provider-stand.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let receiver: TestReceiver
let server: http.Server
let posted: { path: string; body: Record<string, unknown> }[] = []
let respond: (res: http.ServerResponse) => void

beforeAll(async () => {
  server = http.createServer((req, res) => {
    let text = ''
    req.on('data', (chunk) => (text += chunk))
    req.on('end', () => {
      posted.push({ path: req.url ?? '', body: JSON.parse(text) })
      respond(res)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const its = await withReceiver({ settings: { webhookPublicUrl: 'https://hooks.test/webhooks' } })
  ;({ database, receiver } = its)
  receiver.setKeys(sourceAt(`http://127.0.0.1:${port}`))
  return its.stop
})
beforeEach(async () => {
  posted = []
  await database.sql`delete from mediadock.call_budgets`
  await database.sql`delete from mediadock.generations`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

const signing_secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
function sourceAt(api_url: string) {
  const keys = [{ name: 'pictures-key', api_key: 'r8_key', signing_secret }]
  return withSources(keysOf(liveKey), JSON.stringify([{ name: 'pictures', kind: 'replicate', keys, api_url }]))
}

async function closedPort(): Promise<number> {
  const closed = http.createServer().listen(0, '127.0.0.1')
  await once(closed, 'listening')
  const { port } = closed.address() as AddressInfo
  closed.close()
  await once(closed, 'close')
  return port
}

const body = { model: 'owner/name', input: { prompt: 'dog' }, key_name: 'pictures-key' }
const submit = () => receiver.deps.submitter.submit({ ...body, idempotency_key: randomUUID() })
const found = async (key: string) => (await receiver.deps.submitter.find(key)) ?? expect.fail()
/** Stores and claims a submit whose process then stops. */
async function stored() {
  const [key, now] = [randomUUID(), sql`now()`]
  const about = { ...body, idempotencyKey: key, keyName: body.key_name, sourceName: 'pictures', metadata: undefined }
  const opened = await open(receiver.deps.db, { ...about, webhookUrl: 'https://hooks.test/webhooks/pictures', now })
  return opened.kind === 'ours' ? { key, generation: opened.generation } : expect.fail()
}
async function pass(minutes: number) {
  await database.sql`update mediadock.generations set created_at = created_at - make_interval(mins => ${minutes}),
    next_attempt_at = next_attempt_at - make_interval(mins => ${minutes})`
  await receiver.deps.submitter.runOnce()
  // The receiver's own round may have claimed them first.
  await eventually(async () => {
    const held = await database.sql`
      select from mediadock.generations where state = 'pending' and next_attempt_at is not null`
    return held.length === 0
  })
}

describe('a submit to a source without idempotency', () => {
  it('names itself in the webhook URL of its source', async () => {
    const id = randomUUID()
    respond = (res) => json(res, 201, { id, status: 'starting' })
    const answer = await submit()
    expect(answer).toMatchObject({ status: 202, body: { state: 'submitted', request_id: id, cost: null } })
    const { idempotency_key: key } = Object(answer.body)
    expect(posted).toEqual([
      {
        path: '/models/owner/name/predictions',
        body: {
          input: { prompt: 'dog' },
          webhook: `https://hooks.test/webhooks/pictures?generation=${key}`,
          webhook_events_filter: ['completed'],
        },
      },
    ])
  })

  it.each<[string, (res: http.ServerResponse) => void]>([
    ['a 500', (res) => json(res, 500, {})],
    ['a cut connection', (res) => void res.socket?.destroy()],
    ['an answer without an id', (res) => json(res, 201, {})],
  ])('is never sent again after %s, and expires', async (_, answer) => {
    respond = answer
    const { idempotency_key: key } = Object((await submit()).body)
    await pass(60)
    expect(await found(key)).toMatchObject({
      state: 'pending',
      attempts: 1,
      next_attempt_at: null,
      last_error: expect.stringMatching(/^maybe submitted: ./),
    })
    await pass(23 * 60)
    expect(await found(key)).toMatchObject({ state: 'expired', answer: { error: { code: 'submit_expired' } } })
    expect(posted).toHaveLength(1)
  })

  it('is recorded by its only witness once Postgres works again', async () => {
    await database.sql`create function mediadock.full() returns trigger language plpgsql as $$
      begin raise exception 'no space left' using errcode = '53100'; end $$`
    await database.sql`create trigger is_full before insert on mediadock.requests execute function mediadock.full()`
    const id = randomUUID()
    respond = (res) => json(res, 201, { id, status: 'starting' })
    const answer = submit()
    await eventually(() => posted.length === 1)
    await delay(200)
    await database.sql`drop trigger is_full on mediadock.requests`
    expect(await answer).toMatchObject({ status: 202, body: { state: 'submitted', request_id: id } })
    expect(posted).toHaveLength(1)
  })

  it('is not sent again after a crash during the call', async () => {
    respond = (res) => json(res, 201, { id: randomUUID() })
    const key = randomUUID()
    await database.sql`
      insert into mediadock.generations
        (idempotency_key, model, input, key_name, created_at, next_attempt_at, attempts, in_doubt_from)
      values (${key}, 'owner/name', '{}', 'pictures-key', now(), now(), 1, 1)`
    await pass(1)
    await pass(60)
    expect(await found(key)).toMatchObject({ state: 'pending', last_error: expect.stringContaining('maybe submitted') })
    expect(posted).toEqual([])
  })

  it('is sent later after a crash before the call, and not twice if the process was only slow', async () => {
    respond = (res) => json(res, 201, { id: randomUUID() })
    const { key, generation } = await stored()
    await pass(1)
    expect(await found(key)).toMatchObject({ state: 'submitted', attempts: 2 })
    expect(posted).toHaveLength(1)
    expect(await beginCall(receiver.deps.db, generation)).toBe(false)
  })

  it('is not sent again after a crash once its call was begun', async () => {
    const { key, generation } = await stored()
    expect(await beginCall(receiver.deps.db, generation)).toBe(true)
    await pass(1)
    expect(await found(key)).toMatchObject({ state: 'pending', last_error: expect.stringContaining('maybe submitted') })
    expect(posted).toEqual([])
  })

  it('is sent later if the answer is lost with which Postgres stores that its call begins', async () => {
    respond = (res) => json(res, 201, { id: randomUUID() })
    const { db } = receiver.deps
    const execute = db.execute.bind(db)
    const losing = vi.spyOn(db, 'execute').mockImplementation((async (statement: SQL) => {
      const rows = await execute(statement)
      const begun = await database.sql`select from mediadock.generations where in_doubt_from is not null`
      if (begun.length === 0) return rows
      losing.mockRestore()
      throw new Error('the answer was lost')
    }) as unknown as typeof db.execute)
    const { body: answer } = await submit()
    expect(answer).toMatchObject({ state: 'pending', last_error: 'not called: not_begun' })
    expect(posted).toEqual([])
    await pass(1)
    expect(await found(Object(answer).idempotency_key)).toMatchObject({ state: 'submitted' })
    expect(posted).toHaveLength(1)
  })

  it.each<[string, (res: http.ServerResponse) => void]>([
    ['a 429', (res) => json(res, 429, {})],
    ['a refused connection', () => expect.fail()],
  ])('is sent again after %s, which shows that it was not taken', async (what, answer) => {
    const keys = receiver.deps.keys()
    respond = answer
    if (what !== 'a 429') receiver.setKeys(sourceAt(`http://127.0.0.1:${await closedPort()}`))
    const { idempotency_key: key } = Object((await submit()).body)
    receiver.setKeys(keys)
    await database.sql`delete from mediadock.call_budgets`
    posted = []
    respond = (res) => json(res, 201, { id: randomUUID() })
    await pass(60)
    expect(await found(key)).toMatchObject({ state: 'submitted' })
    expect(posted).toHaveLength(1)
  })
})
