import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { parseBody } from '../../../src/receiver/domain/delivery.ts'
import { eventually } from '../../support/eventually.ts'
import { defaultSource } from '../../support/receiver.ts'
import { verify } from '../../support/verify.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'
import { startWebhookCatcher } from '../support/webhook-catcher.ts'

let provider: TestProvider
let catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
let answer = { status: 200, text: 'thanks' }
beforeAll(async () => {
  catcher = await startWebhookCatcher((_one, res) => void res.writeHead(answer.status).end(answer.text))
  // The dispatcher runs too rarely for these tests, unless the button wakes it.
  provider = await startTestProvider({ webhookAllow: [catcher.origin], dispatchIntervalMs: 600_000 })
})
afterAll(async () => {
  await provider.stop()
  await catcher.close()
})

const html = { accept: 'text/html' }
const get = (path: string) => call(provider.consoleUrl, 'GET', path, { headers: html })
const send = (fields: Record<string, string>) =>
  call(provider.consoleUrl, 'POST', '/deliveries/test', {
    rawBody: new URLSearchParams(fields).toString(),
    headers: { ...html, 'content-type': 'application/x-www-form-urlencoded' },
  })
const shownOf = (id: string, words: string) =>
  eventually(async () => {
    const { body } = await get(`/deliveries/${id}`)
    return body.includes(words) ? body : undefined
  })

it('posts once, signed with the secret of the key, even if the form is sent again, and shows the answer', async () => {
  const key = await provider.createKey({ account: 'tester', name: 'web' })
  const form = (await get(`/deliveries/test?key=${key.id}`)).body
  const id = /name="id" value="([0-9a-f-]{36})"/.exec(form)?.[1] ?? ''
  const fields = { id, key: key.id, url: `${catcher.origin}/hook` }
  answer = { status: 200, text: '<b>thanks</b>\u202e' }
  const answers = await Promise.all([send(fields), send(fields)])
  expect(answers.map(({ status, headers }) => `${status} ${headers.get('location')}`)).toEqual(
    Array(2).fill(`303 /deliveries/${id}`),
  )
  const page = await shownOf(id, 'Answered 200.')
  expect(page).toContain('&lt;b&gt;thanks&lt;/b&gt;·')
  expect((await send(fields)).status).toBe(303)
  const changed = await send({ ...fields, url: `${catcher.origin}/other` })
  expect([changed.status, changed.body.includes('already sent a test'), changed.body.includes(id)]).toEqual([
    409,
    true,
    false,
  ])
  expect(await provider.database.sql`select state, attempts, request_id from provider.deliveries`).toEqual([
    { state: 'delivered', attempts: 1, request_id: null },
  ])
  const [caught, ...more] = catcher.caught
  expect(more).toEqual([])
  expect(JSON.parse(String(caught?.body))).toEqual({
    request_id: id,
    status: 'TEST',
    message: expect.stringContaining('test'),
  })
  // docs/provider.md: a test is stored and lands nothing.
  expect(parseBody(defaultSource, caught?.body ?? Buffer.alloc(0))).toEqual({
    kind: 'unreadable',
    reason: 'unknown_status',
    jobId: id,
  })
  expect(caught?.headers['x-service-webhook-id']).toBe(id)
  const signature = String(caught?.headers['x-service-signature'])
  const secrets = [{ name: 'web', signingSecret: key.signing_secret }]
  expect(verify(caught?.body ?? Buffer.alloc(0), signature, secrets, Date.now() / 1000)).toMatchObject({ ok: true })
  expect((await get(`/deliveries/test?account=tester`)).body).toContain(`value="${catcher.origin}/hook"`)
})

it('explains a failed test in words, and does not retry it', async () => {
  const key = await provider.createKey({ account: 'refused' })
  const id = randomUUID()
  answer = { status: 401, text: 'who are you?' }
  await send({ id, key: key.id, url: `${catcher.origin}/hook` })
  const page = await shownOf(id, 'given up')
  expect(page).toContain('check its signing secret and its clock')
  expect(page).toContain('who are you?')
  expect(page).not.toContain('hx-get')
  const again = await call(provider.consoleUrl, 'POST', `/deliveries/${id}/resend`, { headers: html })
  expect(again.status).toBe(409)
})

it('sends nothing to a private address, with a revoked key, or more than ten times a minute', async () => {
  const key = await provider.createKey({ account: 'bounded' })
  const before = catcher.caught.length
  const wrong = await send({ id: randomUUID(), key: key.id, url: 'http://127.0.0.1:1/hook' })
  expect([wrong.status, wrong.body.includes('webhook_url must be an https URL')]).toEqual([400, true])
  const inside = await send({ id: randomUUID(), key: key.id, url: 'https://10.0.0.1/hook' })
  expect([inside.status, inside.body.includes('must not point to an internal or private address')]).toEqual([400, true])
  expect((await send({ id: randomUUID(), key: randomUUID(), url: `${catcher.origin}/` })).status).toBe(422)
  answer = { status: 200, text: '' }
  const many = await Promise.all(
    Array.from({ length: 12 }, () => send({ id: randomUUID(), key: key.id, url: `${catcher.origin}/` })),
  )
  expect(many.filter(({ status }) => status === 303)).toHaveLength(10)
  expect(many.filter(({ status }) => status === 429)).toHaveLength(2)
  await eventually(() => catcher.caught.length === before + 10)
})
