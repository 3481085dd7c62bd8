import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createClient } from '../../../src/client/read-results.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { withReceiver, type WithReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

let its: WithReceiver
let stand: ProviderStand
let asked: string[]
/** The answer to a cancellation, and to a poll. */
let answers: { cancel: [status: number, body: object]; poll: object }

beforeAll(async () => {
  stand = await startProviderStand()
  stand.answer((_id, { method, url, headers }, res) => {
    if (url?.endsWith('/cancel') === true) {
      asked.push(`${method} ${url} ${headers.authorization}`)
      return json(res, ...answers.cancel)
    }
    return json(res, 200, { id: url?.split('/').at(-1), ...answers.poll })
  })
  const signing_secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
  const sources = [
    { name: 'fal', kind: 'fal', api_url: stand.url, account: 'me', keys: [{ name: 'f', api_key: 'fk' }] },
    { name: 'rep', kind: 'replicate', api_url: stand.url, keys: [{ name: 'r', api_key: 'rk', signing_secret }] },
    { name: 'luma', kind: 'luma', api_url: stand.url, keys: [{ name: 'l', api_key: 'lk' }] },
  ]
  const settings = { keys: withSources(keysOf(liveKey), JSON.stringify(sources)) }
  its = await withReceiver({ settings })
  return async () => {
    await its.stop()
    await stand.close()
  }
})

beforeEach(async () => {
  asked = []
  await its.database.sql`delete from mediadock.call_budgets`
})

/** Tracks an open job of the source with this key. */
async function tracked(key_name: string, others: object = {}): Promise<{ id: string; job: string }> {
  const { json: body } = await call(its.receiver, 'POST /api/requests', {
    body: { external_id: `job-${randomUUID()}`, key_name, model: 'me/app/path', ...others },
  })
  const { id, external_id } = body as Record<string, unknown>
  return { id: String(id), job: String(external_id) }
}
const cancel = (id: string) => call(its.receiver, `POST /api/requests/${id}/cancel`)

describe('POST /api/requests/{id}/cancel', () => {
  it('asks Replicate with the key of the request, and lands what a poll says of it', async () => {
    answers = { cancel: [200, {}], poll: { status: 'canceled' } }
    const { id, job } = await tracked('r')
    expect(await cancel(id)).toMatchObject({ status: 202, json: { outcome: 'asked', request: { status: 'CANCELED' } } })
    expect(asked).toEqual([`POST /predictions/${job}/cancel Bearer rk`])
    const [row] = await its.database.sql`select action, target, detail from mediadock.audit where target = ${id}`
    expect(row).toMatchObject({ action: 'cancel', detail: { outcome: 'asked' } })
    expect(await cancel(id)).toMatchObject({ status: 409, json: { error: { code: 'not_cancelable' } } })
    expect(asked).toHaveLength(1)
  })

  it('asks fal below owner and app, and changes no state while the job runs', async () => {
    answers = { cancel: [202, { status: 'CANCELLATION_REQUESTED' }], poll: { status: 'IN_PROGRESS' } }
    const { id, job } = await tracked('f')
    const request = { status: 'IN_PROGRESS', landed_at: null, polls: 1 }
    expect(await cancel(id)).toMatchObject({ status: 202, json: { outcome: 'asked', request } })
    expect(asked).toEqual([`PUT /me/app/requests/${job}/cancel Key fk`])
  })

  it('lands the result of a job that had ended', async () => {
    answers = {
      cancel: [400, { status: 'ALREADY_COMPLETED' }],
      poll: { status: 'COMPLETED', images: [{ url: 'https://a.test/1.png' }] },
    }
    const { id } = await tracked('f')
    expect(await cancel(id)).toMatchObject({
      status: 202,
      json: { outcome: 'ended', request: { status: 'COMPLETED' } },
    })
  })

  it.each(['live', 'l'])('calls nothing for a source that cancels no jobs: the key %s', async (key_name) => {
    const request_id = randomUUID()
    await call(its.receiver, 'POST /api/requests', { body: { request_id, key_name } })
    expect(await cancel(request_id)).toMatchObject({ status: 409, json: { error: { code: 'not_cancelable' } } })
    expect(asked).toEqual([])
  })

  it('does not know a request: 404', async () => {
    expect(await cancel(randomUUID())).toMatchObject({ status: 404 })
  })

  it('takes a job that the source does not know for none to cancel', async () => {
    answers = { cancel: [404, {}], poll: {} }
    const { id } = await tracked('r')
    const error = { code: 'not_cancelable', message: 'the source does not know this job' }
    expect(await cancel(id)).toMatchObject({ status: 409, json: { error } })
  })

  it('says what to do for a job of fal that was tracked without a model, and then cancels it', async () => {
    answers = { cancel: [202, {}], poll: { status: 'IN_PROGRESS' } }
    const { id, job } = await tracked('f', { model: undefined })
    const error = { code: 'not_cancelable', message: expect.stringContaining('POST /api/requests') }
    expect(await cancel(id)).toMatchObject({ status: 409, json: { error } })
    expect(asked).toEqual([])
    await tracked('f', { external_id: job })
    expect(await cancel(id)).toMatchObject({ status: 202, json: { outcome: 'asked' } })
    expect(asked).toEqual([`PUT /me/app/requests/${job}/cancel Key fk`])
  })

  it.each([[500], [302]])('answers 502 where the source answers %i', async (status) => {
    answers = { cancel: [status, {}], poll: {} }
    const { id } = await tracked('r')
    expect(await cancel(id)).toMatchObject({ status: 502, json: { error: { code: 'provider_unreachable' } } })
  })

  it('rests a key that is refused or limited, and calls nothing while it rests', async () => {
    for (const status of [401, 429]) {
      await its.database.sql`delete from mediadock.call_budgets`
      answers = { cancel: [status, {}], poll: {} }
      const { id } = await tracked('r')
      expect((await cancel(id)).status).toBe(status === 401 ? 502 : 429)
      asked = []
      expect(await cancel(id)).toMatchObject({ status: 429, json: { error: { code: 'no_call_left' } } })
      expect(asked).toEqual([])
    }
  })
})

describe('the page of a request', () => {
  const headers = {
    accept: 'text/html',
    'sec-fetch-site': 'same-origin',
    'sec-fetch-mode': 'navigate',
    'sec-fetch-dest': 'document',
  }
  const page = (path: string, method = 'GET') =>
    fetch(new URL(path, its.receiver.internalUrl), { method, headers, redirect: 'manual' })
  const shown = async (path: string) => (await page(path)).text()

  it('offers to cancel an open job of a source that can, and asks after a confirmation', async () => {
    answers = { cancel: [200, {}], poll: { status: 'canceled' } }
    const { id, job } = await tracked('r')
    expect(await shown(`/requests/${id}`)).toContain(`href="/requests/${id}/cancel"`)
    expect(await shown(`/requests/${id}/cancel`)).toContain(`action="/requests/${id}/cancel"`)
    expect(asked).toEqual([])
    const done = await page(`/requests/${id}/cancel`, 'POST')
    expect([done.status, done.headers.get('location')]).toEqual([303, expect.stringContaining('poll=landed')])
    expect(asked).toEqual([`POST /predictions/${job}/cancel Bearer rk`])
    expect(await shown(String(done.headers.get('location')))).toContain('the request is now CANCELED')
    expect(await shown(`/requests/${id}`)).not.toContain('/cancel"')
  })

  it('says that a job which runs on was asked to be canceled', async () => {
    answers = { cancel: [202, { status: 'CANCELLATION_REQUESTED' }], poll: { status: 'IN_PROGRESS' } }
    const { id } = await tracked('f')
    const { headers: sent } = await page(`/requests/${id}/cancel`, 'POST')
    expect(await shown(String(sent.get('location')))).toContain('The source was asked to cancel it')
  })

  it('offers nothing for a source that cancels no jobs', async () => {
    const { id } = await tracked('l')
    expect(await shown(`/requests/${id}`)).not.toContain('/cancel"')
    expect(await shown(`/requests/${id}/cancel`)).not.toContain('<form method="post" action="/requests')
  })
})

it('cancel of the client asks, and rejects where nothing can be canceled', async () => {
  answers = { cancel: [200, {}], poll: { status: 'canceled' } }
  const { id } = await tracked('r')
  const client = createClient({ url: its.receiver.internalUrl })
  expect(await client.cancel(id)).toMatchObject({ outcome: 'asked', request: { status: 'CANCELED' } })
  await expect(client.cancel(id)).rejects.toMatchObject({ code: 'not_cancelable' })
})
