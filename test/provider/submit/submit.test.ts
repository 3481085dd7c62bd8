import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { submit as submitTo, type SubmitDeps } from '../../../src/provider/submit/submit.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
let key: string
let live: string

beforeAll(async () => {
  provider = await startTestProvider()
  key = (await provider.createKey()).api_key
  live = (await provider.createKey({ account: 'payer', environment: 'live' })).api_key
})
afterAll(() => provider.stop())

const submit = (body: unknown, more: { slug?: string; key?: string; headers?: Record<string, string> } = {}) =>
  provider.call('POST', `/v1/models/${more.slug ?? 'aurora-image'}`, {
    key: more.key ?? key,
    body,
    ...(more.headers && { headers: more.headers }),
  })
const rawSubmit = (rawBody: string | Uint8Array, headers: Record<string, string> = {}) =>
  provider.call('POST', '/v1/models/aurora-image', { key, rawBody, headers })

describe('a body that is not a submit', () => {
  it.each<[name: string, body: string, headers?: Record<string, string>]>([
    ['no JSON', '{"input":'],
    ['empty', ''],
    ['a JSON string', '"input"'],
    ['null', 'null'],
    ['an array', '[]'],
    ['without input', '{}'],
    ['with input null', '{"input":null}'],
    ['with input an array', '{"input":[]}'],
    ['with input a string', '{"input":"prompt"}'],
    ['wrongly compressed', 'no gzip', { 'content-encoding': 'gzip' }],
  ])('that is %s is 400 invalid_body, in words of our own', async (_name, body, headers = {}) => {
    const answer = await rawSubmit(body, headers)
    expect(answer).toMatchObject({
      status: 400,
      body: { error: { type: 'invalid_request_error', code: 'invalid_body' } },
    })
    expect(answer.body.error.message).toMatch(/^(the body|input) (is|must)/)
    expect(answer.body.error.message).not.toMatch(/expected|received|undefined|record/)
  })

  it.each(['webhookUrl', 'model', '__proto__'])(
    'with the member %s is 400 invalid_body, and the message names it',
    async (member) => {
      for (const path of ['/v1/models/aurora-image', '/v1/models/aurora-image/estimate']) {
        const rawBody = `{"input":{"prompt":"x"},"${member}":"https://example.com/"}`
        const answer = await provider.call('POST', path, { key, rawBody })
        expect(answer).toMatchObject({ status: 400, body: { error: { code: 'invalid_body' } } })
        expect(answer.body.error.message).toMatch(new RegExp(`^${member} is not a member of this body`))
      }
    },
  )

  it.each([
    ['of no type', { 'content-type': '' }],
    ['of another type', { 'content-type': 'text/plain' }],
    ['of a type that is like JSON', { 'content-type': 'application/problem+json' }],
    ['in another charset', { 'content-type': 'application/json; charset=iso-8859-1' }],
    ['in an unknown charset', { 'content-type': 'application/json; charset=klingon' }],
    ['compressed in an unknown way', { 'content-encoding': 'compress' }],
    ['of bytes that are not UTF-8', {}, Buffer.from('{"input":{"prompt":"\xff"}}', 'latin1')],
  ])('%s is 415 unsupported_media_type', async (_name, headers, bytes = Buffer.from('{"input":{"prompt":"x"}}')) => {
    expect(await rawSubmit(bytes, headers)).toMatchObject({
      status: 415,
      body: { error: { code: 'unsupported_media_type' } },
    })
  })

  it('of more than 1 MiB is 413, of just less is read', async () => {
    const padded = (bytes: number) => `{"input":{"prompt":"x"}${' '.repeat(bytes - 24)}}`
    expect(padded(1_048_577)).toHaveLength(1_048_577)
    expect(await rawSubmit(padded(1_048_577))).toMatchObject({
      status: 413,
      body: { error: { code: 'payload_too_large' } },
    })
    expect((await rawSubmit(padded(1_048_576))).status).toBe(200)
  })

  it.each(['webhook_url', 'nested'])('nested 100,000 deep in %s is refused', async (member) => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000)
    const body = member === 'nested' ? `{"input":{"prompt":${deep}}}` : `{"input":{"prompt":"x"},"webhook_url":${deep}}`
    expect((await rawSubmit(body)).status).toBe(422)
  })

  it('with more members than any valid input is refused before it is parsed', async () => {
    const unfinished = `{"input":{"prompt":[${'0,'.repeat(2000)}`
    expect(await rawSubmit(unfinished)).toMatchObject({ status: 422, body: { error: { code: 'model_input_invalid' } } })
  })

  it('in UTF-16 is 415, because UTF-16 could hide JSON from the checks', async () => {
    const bytes = Buffer.from(JSON.stringify({ input: { prompt: 'x' } }), 'utf16le')
    expect((await rawSubmit(bytes, { 'content-type': 'application/json; charset=utf-16le' })).status).toBe(415)
  })

  it('whose prompt is full of JSON punctuation is accepted', async () => {
    for (const prompt of [',[{'.repeat(1300), '"\\'.repeat(1000), '\\'.repeat(1999), '}]'.repeat(1000)]) {
      expect((await submit({ input: { prompt } })).status).toBe(200)
    }
  })

  it('with a webhook_url that is not a string is 400 webhook_url_invalid', async () => {
    for (const url of [7, null, {}, []]) {
      expect(await submit({ input: { prompt: 'x' }, webhook_url: url })).toMatchObject({
        status: 400,
        body: { error: { code: 'webhook_url_invalid' } },
      })
    }
  })
})

describe('an input that the model does not allow', () => {
  it.each([
    ['an unknown parameter', { prompt: 'x', seed: 1 }, 'seed'],
    ['a missing one', {}, 'prompt'],
    ['one of another type', { prompt: 7 }, 'prompt'],
    ['null', { prompt: null }, 'prompt'],
    ['a value outside the enum', { prompt: 'x', aspect_ratio: '2:1' }, 'aspect_ratio'],
    ['a prompt that is too long', { prompt: 'x'.repeat(4001) }, 'prompt'],
    ['NUL', { prompt: 'a\0b' }, 'prompt'],
    ['a lone surrogate', { prompt: 'a\ud800b' }, 'prompt'],
    ['an unknown parameter named like a method', { prompt: 'x', constructor: 1 }, 'constructor'],
  ])('%s is 422 and the message names the key', async (_name, input, named) => {
    for (const path of ['/v1/models/aurora-image', '/v1/models/aurora-image/estimate']) {
      const answer = await provider.call('POST', path, { key, body: { input } })
      expect(answer).toMatchObject({
        status: 422,
        body: { error: { type: 'invalid_request_error', code: 'model_input_invalid' } },
      })
      expect(answer.body.error.message).toContain(`input.${named} `)
    }
  })

  it('__proto__ is 422 too', async () => {
    expect((await rawSubmit('{"input":{"prompt":"x","__proto__":{"a":1}}}')).status).toBe(422)
  })
})

describe('a model that cannot be used', () => {
  it('is 404 model_not_found at submit, not_found elsewhere', async () => {
    const body = { input: { prompt: 'x' } }
    for (const slug of ['no-such-model', 'vela-legacy-text-to-video', 'Aurora-Image', '__proto__', '%F0%9F%8C%8D']) {
      expect(await submit(body, { slug })).toMatchObject({
        status: 404,
        body: { error: { type: 'invalid_request_error', code: 'model_not_found' } },
      })
      const estimate = await provider.call('POST', `/v1/models/${slug}/estimate`, { key, body })
      expect(estimate).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } })
    }
  })
})

describe('cost', () => {
  it('equals the estimate for the same input, in the sandbox too', async () => {
    const input = { prompt: 'x', num_images: 3, resolution: '2k' }
    const estimate = await provider.call('POST', '/v1/models/aurora-image-pro/estimate', { key, body: { input } })
    expect(estimate.body).toEqual({ credits: 31.5 })
    expect((await submit({ input }, { slug: 'aurora-image-pro' })).body.cost).toBe(31.5)
  })

  it('is 402 exactly if the balance is lower', async () => {
    const body = { input: { prompt: 'x' } }
    expect(await submit(body, { key: live })).toMatchObject({
      status: 402,
      body: { error: { type: 'billing_error', code: 'insufficient_credits' } },
    })
    await provider.grant('payer', '3.999999')
    expect((await submit(body, { key: live })).status).toBe(402)
    await provider.grant('payer', '0.000001')
    expect((await submit(body, { key: live })).status).toBe(200)
    expect((await submit(body, { key: live })).status).toBe(402)
    expect((await provider.call('GET', '/v1/account', { key: live })).body.balance).toEqual({ credits: 0 })
  })

  it('never overdraws under parallel submits', async () => {
    const rich = await provider.createKey({ account: 'crowd', environment: 'live' })
    await provider.grant('crowd', 40)
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => submit({ input: { prompt: 'x' } }, { key: rich.api_key })),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(10)
    expect(answers.filter(({ status }) => status === 402)).toHaveLength(30)
  })
})

describe('an Idempotency-Key', () => {
  const keyed = (idempotencyKey: string, body: unknown, more: { key?: string; slug?: string } = {}) =>
    submit(body, { ...more, headers: { 'idempotency-key': idempotencyKey } })

  it('with the same parameters returns the first answer without a second charge', async () => {
    const payer = await provider.createKey({ account: 'careful', environment: 'live' })
    await provider.grant('careful', 4)
    const idempotencyKey = randomUUID()
    const first = await keyed(idempotencyKey, { input: { prompt: 'x', aspect_ratio: '1:1' } }, { key: payer.api_key })
    const again = await keyed(
      idempotencyKey.toUpperCase(),
      { input: { aspect_ratio: '1:1', prompt: 'x' } },
      { key: payer.api_key },
    )
    expect(first.status).toBe(200)
    expect(again).toMatchObject({ status: 200, body: first.body })
    const [row] = await provider.database
      .sql`select count(*)::int as n from provider.requests where account_id = 'careful'`
    expect(row?.['n']).toBe(1)
  })

  it.each([
    ['input', { input: { prompt: 'y' } }, 'aurora-image'],
    ['webhook_url', { input: { prompt: 'x' }, webhook_url: 'https://example.com/' }, 'aurora-image'],
    ['model', { input: { prompt: 'x' } }, 'aurora-image-pro'],
  ])('with another %s is 409 idempotency_key_reuse', async (_name, body, slug) => {
    const idempotencyKey = randomUUID()
    await keyed(idempotencyKey, { input: { prompt: 'x' } })
    expect(await keyed(idempotencyKey, body, { slug })).toMatchObject({
      status: 409,
      body: { error: { type: 'invalid_request_error', code: 'idempotency_key_reuse' } },
    })
  })

  it.each(['', 'abc', '00000000-0000-0000-0000-000000000000', '5f0c1c5e-3c0a-1c1c-9d5c-1c2d3e4f5a6b'])(
    '%j is refused: not a UUID v4',
    async (bad) => {
      expect(await keyed(bad, { input: { prompt: 'x' } })).toMatchObject({
        status: 400,
        body: { error: { code: 'idempotency_key_invalid' } },
      })
    },
  )

  it('used in parallel creates one generation: the others get its id or request_in_progress', async () => {
    const payer = await provider.createKey({ account: 'racer', environment: 'live' })
    await provider.grant('racer', 400)
    const idempotencyKey = randomUUID()
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => keyed(idempotencyKey, { input: { prompt: 'x' } }, { key: payer.api_key })),
    )
    const ids = new Set(answers.filter(({ status }) => status === 200).map(({ body }) => body.request_id))
    expect(ids.size).toBe(1)
    for (const { status, body } of answers)
      if (status !== 200) expect([status, body.error.code]).toEqual([409, 'request_in_progress'])
    const [row] = await provider.database
      .sql`select count(*)::int as n from provider.requests where account_id = 'racer'`
    expect(row?.['n']).toBe(1)
  })

  it('is not remembered for 402 and 422', async () => {
    const payer = await provider.createKey({ account: 'poor', environment: 'live' })
    const idempotencyKey = randomUUID()
    expect((await keyed(idempotencyKey, { input: { prompt: 'x' } }, { key: payer.api_key })).status).toBe(402)
    expect((await keyed(idempotencyKey, { input: { prompt: 7 } }, { key: payer.api_key })).status).toBe(422)
    await provider.grant('poor', 4)
    expect((await keyed(idempotencyKey, { input: { prompt: 'y' } }, { key: payer.api_key })).status).toBe(200)
  })

  it('belongs to an account and an environment', async () => {
    const idempotencyKey = randomUUID()
    const other = await provider.createKey()
    const sibling = await provider.createKey({ account: other.account })
    const first = await keyed(idempotencyKey, { input: { prompt: 'x' } }, { key: other.api_key })
    const bySibling = await keyed(idempotencyKey, { input: { prompt: 'x' } }, { key: sibling.api_key })
    const byStranger = await keyed(idempotencyKey, { input: { prompt: 'x' } })
    expect(bySibling.body.request_id).toBe(first.body.request_id)
    expect(byStranger.body.request_id).not.toBe(first.body.request_id)
  })

  it('older than 24 hours is a new request', async () => {
    const idempotencyKey = randomUUID()
    const first = await keyed(idempotencyKey, { input: { prompt: 'x' } })
    const age = (interval: string) => provider.database.sql`
      update provider.idempotency_keys set created_at = now() - ${interval}::interval where key = ${idempotencyKey}`
    await age('23 hours 59 minutes')
    expect((await keyed(idempotencyKey, { input: { prompt: 'x' } })).body.request_id).toBe(first.body.request_id)
    await age('24 hours')
    const later = await keyed(idempotencyKey, { input: { prompt: 'y' } })
    expect(later.status).toBe(200)
    expect(later.body.request_id).not.toBe(first.body.request_id)
  })

  it('is answered even when the model has been switched off since', async () => {
    const idempotencyKey = randomUUID()
    const body = { input: { prompt: 'x' } }
    const first = await keyed(idempotencyKey, body, { slug: 'aurora-image-preview' })
    const { setModelEnabled } = await import('../../../src/provider/operating/commands.ts')
    await setModelEnabled(provider.deps, { slug: 'aurora-image-preview', environment: 'sandbox', enabled: false })
    expect((await keyed(randomUUID(), body, { slug: 'aurora-image-preview' })).status).toBe(404)
    expect((await keyed(idempotencyKey, body, { slug: 'aurora-image-preview' })).body).toEqual(first.body)
  })
})

describe('visibility', () => {
  it('is limited to the same account and environment', async () => {
    const owner = await provider.createKey({ account: 'owner' })
    const { body } = await submit({ input: { prompt: 'x' } }, { key: owner.api_key })
    const sibling = await provider.createKey({ account: 'owner' })
    const ownLive = await provider.createKey({ account: 'owner', environment: 'live' })
    const see = async (by: string) =>
      (await provider.call('GET', `/v1/requests/${body.request_id}`, { key: by })).status
    expect(await see(sibling.api_key)).toBe(200)
    expect(await see(ownLive.api_key)).toBe(404)
    expect(await see(key)).toBe(404)
    expect(
      (await provider.call('GET', `/v1/requests/${body.request_id.toUpperCase()}/status`, { key: owner.api_key })).body
        .status,
    ).toBe('COMPLETED')
  })
})

describe('a submit', () => {
  const late = () => new Error('its answer was given up')

  /** In this process, with parts of it changed. */
  async function submitting(changes: Partial<SubmitDeps>, signal: AbortSignal) {
    const { id: keyId, account: accountId } = await provider.createKey({ environment: 'live' })
    await provider.grant(accountId, 10)
    const deps: SubmitDeps = {
      db: provider.deps.db,
      settings: provider.settings,
      catalog: builtInCatalog,
      time: postgresTime,
      random: () => 0.5,
      resolve: async () => ['8.8.8.8'],
      statusReader: async () => null,
      logger: createLogger('silent'),
      onQueued: () => {},
      ...changes,
    }
    const caller = {
      keyId,
      accountId,
      environment: 'live' as const,
      scopes: ['generate' as const],
      faults: null,
      activations: {},
    }
    const body = { input: { prompt: 'x' }, webhook_url: 'https://hooks.example/x' }
    const submitted = submitTo(deps, { caller, slug: 'aurora-image', body, idempotencyKey: undefined, signal })
    const written = async () =>
      (await provider.database.sql`select id from provider.requests where account_id = ${accountId}`).length
    return { submitted, written }
  }

  it('is not stored if its answer timed out while webhook_url was resolved', async () => {
    const controller = new AbortController()
    const resolve = async () => {
      controller.abort(late())
      return ['8.8.8.8']
    }
    const { submitted, written } = await submitting({ resolve }, controller.signal)
    await expect(submitted).rejects.toThrow('given up')
    expect(await written()).toBe(0)
  })

  it('is not stored if its answer timed out while it waited for a connection', async () => {
    const pool = createPool({ url: provider.database.url, max: 1 })
    onTestFinished(() => pool.close())
    const held = await pool.client.reserve()
    const controller = new AbortController()
    const { submitted, written } = await submitting({ db: pool.db }, controller.signal)
    const failure = submitted.catch((error: unknown) => error)
    // Long after it began to wait.
    await provider.database.sql`select pg_sleep(0.1)`
    controller.abort(late())
    held.release()
    expect(await failure).toMatchObject({ message: expect.stringContaining('given up') })
    expect(await written()).toBe(0)
    // The connection that it did not use is there for the next.
    expect(await pool.client`select 1`).toHaveLength(1)
  })

  it('that is stored is answered with position 0 if the position cannot be read', async () => {
    const statusReader = async () => {
      throw new Error('no connection')
    }
    const { submitted, written } = await submitting({ statusReader }, new AbortController().signal)
    expect(await submitted).toMatchObject({ status: 'IN_QUEUE', queue_position: 0, cost: 4 })
    expect(await written()).toBe(1)
  })
})
