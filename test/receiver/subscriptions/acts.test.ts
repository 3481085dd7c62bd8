import { beforeAll, expect, it } from 'vitest'
import { createSubscriptionPoster } from '../../../src/receiver/subscriptions/role.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { verify } from '../../support/verify.ts'
import { deliver, failed, nowSeconds } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'
import { startSubscriber } from './support/subscriber.ts'

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

const api = (operation: string, body?: unknown) => call(receiver, operation, body === undefined ? {} : { body })
const act = (word: string) => api(`POST /api/subscriptions/shop/${word}`)

it('the API adds, lists, tests, pauses, resumes, rolls and removes one, with an audit', async () => {
  const subscriber = await startSubscriber()
  const shop = { name: 'shop', url: subscriber.url, retry_hours: 2 }
  const added = await api('POST /api/subscriptions', shop)
  expect(added.status).toBe(201)
  const { secret } = added.json

  expect((await act('test')).json).toMatchObject({ ok: true })
  const [sample] = subscriber.posted
  expect(sample?.id).toMatch(/^test-/)
  const signature = String(sample?.headers['x-service-signature'])
  const secrets = [{ name: 'it', signingSecret: secret }]
  expect(verify(Buffer.from(sample?.body ?? ''), signature, secrets, nowSeconds())).toMatchObject({ ok: true })

  expect((await act('pause')).status).toBe(200)
  await deliver(receiver.webhookUrl, failed().body)
  const listed = await eventually(async () => {
    const { json } = await api('GET /api/subscriptions')
    return json.data[0].backlog === 1 && json.data[0]
  })
  expect(listed).toMatchObject({
    name: 'shop',
    state: 'paused',
    retry_hours: 2,
    backlog: 1,
  })
  expect(Date.now() - Date.parse(listed.oldest_unsent_at)).toBeLessThan(60_000)
  expect(JSON.stringify(listed)).not.toContain(secret)
  expect(subscriber.posted).toHaveLength(1)

  const { json: rolled } = await act('roll')
  expect(rolled.secret).not.toBe(secret)
  expect((await act('resume')).status).toBe(200)
  const [, change] = await eventually(() => subscriber.posted.length === 2 && subscriber.posted)
  const again = verify(
    Buffer.from(change?.body ?? ''),
    String(change?.headers['x-service-signature']),
    [{ name: 'it', signingSecret: rolled.secret }],
    nowSeconds(),
  )
  expect(again).toMatchObject({ ok: true })

  subscriber.answer(() => 503)
  expect((await act('test')).json).toMatchObject({ ok: false, trouble: 'the service answered 503' })
  expect((await act('remove')).status).toBe(200)
  expect((await api('GET /api/subscriptions')).json.data).toEqual([])
  expect((await act('remove')).status).toBe(404)

  const audit = await database.sql`select action, target, via, detail from mediadock.audit order by id`
  expect(audit.map(({ action, via }) => `${action} ${via}`)).toEqual(
    ['add', 'test', 'pause', 'roll', 'resume', 'test', 'remove'].map((word) => `subscription_${word} api`),
  )
  expect(JSON.stringify(audit)).not.toMatch(/whsec_/)
})

it('the API refuses forbidden URLs, repeated names, and deleted positions', async () => {
  const add = (body: object) => api('POST /api/subscriptions', { name: 'x', url: 'https://x.example.com/', ...body })
  for (const url of [
    'http://x.example.com/',
    'https://10.0.0.1/',
    'https://db.internal/',
    'https://u:p@x.example.com/',
    'ftp://x',
    'x',
  ])
    expect(await add({ url }), url).toMatchObject({ status: 400, json: { error: { code: 'invalid_body' } } })
  expect(await add({ name: '../x' })).toMatchObject({ status: 400 })
  const message = expect.stringContaining('and begin and end with a letter or a digit')
  expect(await add({ name: 'x-' })).toMatchObject({ status: 400, json: { error: { message } } })
  await database.sql`update mediadock.feed_bounds set pruned_to = 1000`
  expect(await add({ from: 999 })).toMatchObject({ status: 410, json: { error: { code: 'position_expired' } } })
  expect(await add({ from: 9_000_000_000_000_000 })).toMatchObject({
    status: 410,
    json: { error: { message: expect.stringContaining('it was never assigned') } },
  })
  expect(await add({ from: 'oldest' })).toMatchObject({ status: 201, json: { position: 1000 } })
  expect(await add({})).toMatchObject({ status: 409, json: { error: { code: 'name_taken' } } })

  await api('POST /api/subscriptions/x/pause')
  const [{ claims } = {}] = await database.sql`select claims from mediadock.subscriptions`
  expect(await api('POST /api/subscriptions/x/resume', { from: 999 })).toMatchObject({ status: 410 })
  expect((await api('GET /api/subscriptions')).json.data[0]).toMatchObject({ state: 'paused', position: 1000 })
  const head = (await api('GET /api/feed')).json.head
  expect(await api('POST /api/subscriptions/x/resume', { from: 'newest' })).toMatchObject({
    status: 200,
    json: { position: head },
  })
  // The previous claimant can no longer write the position. The receiver may have claimed it already.
  expect((await database.sql`select claims from mediadock.subscriptions`)[0]?.['claims']).toBeGreaterThan(claims)
  expect(await api('POST /api/subscriptions/nobody/resume')).toMatchObject({ status: 404 })
  await api('POST /api/subscriptions/x/remove')
})

it('dials only public addresses in production, regardless of who added the subscription', async () => {
  const subscriber = await startSubscriber()
  const poster = createSubscriptionPoster({ production: true })
  const outcome = await poster.post(
    { url: subscriber.url, headers: {}, body: Buffer.from('{}') },
    new AbortController().signal,
  )
  await poster.close()
  expect(outcome).toMatchObject({ ok: false, detail: 'not sent: the URL must be an https URL' })
  expect(subscriber.posted).toEqual([])
})
