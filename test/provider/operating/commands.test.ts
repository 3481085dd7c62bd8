import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { importDemoKeys, listKeys } from '../../../src/provider/accounts/keys.ts'
import { checkLedger } from '../../../src/provider/accounts/ledger.ts'
import * as commands from '../../../src/provider/operating/commands.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider()
})
afterAll(() => provider.stop())

describe('keys', () => {
  it('are listed without their secrets, newest first, and marked when revoked', async () => {
    const first = await provider.createKey({ account: 'listed', name: 'first' })
    const second = await provider.createKey({
      account: 'listed',
      name: 'second',
      environment: 'live',
      scopes: ['read'],
    })
    await commands.revokeKey(provider.deps, first.id)
    const listed = await listKeys(provider.deps.db, { account: 'listed' })
    expect(listed).toMatchObject([
      {
        id: second.id,
        name: 'second',
        environment: 'live',
        scopes: ['read'],
        revoked_at: null,
        hint: second.api_key.slice(-4),
      },
      {
        id: first.id,
        name: 'first',
        environment: 'sandbox',
        scopes: ['generate', 'read'],
        revoked_at: expect.any(String),
      },
    ])
    expect(await listKeys(provider.deps.db, { account: 'listed', limit: 1 })).toEqual(listed.slice(0, 1))
    expect(await listKeys(provider.deps.db, { account: 'listed', before: second.id })).toEqual(listed.slice(1))
    expect(await commands.readKey(provider.deps, first.id)).toEqual(listed[1])
    const text = JSON.stringify(listed)
    for (const { api_key, signing_secret } of [first, second]) {
      expect(text).not.toContain(api_key)
      expect(text).not.toContain(signing_secret)
    }
  })

  it.each([
    ['an empty account', { account: '' }],
    ['an account that no address can name', { account: '..' }],
    ['a name with a line break', { name: 'a\nb' }],
    ['an unknown scope', { scopes: ['admin'] }],
    ['no scope', { scopes: [] }],
    ['an unknown environment', { environment: 'staging' }],
  ])('are refused with %s', async (_name, wrong) => {
    await expect(provider.createKey(wrong)).rejects.toThrow(commands.CommandError)
  })

  it('that are unknown cannot be revoked', async () => {
    await expect(commands.revokeKey(provider.deps, randomUUID())).rejects.toThrow('there is no key')
    await expect(commands.revokeKey(provider.deps, "x'; drop")).rejects.toThrow('there is no key')
  })
})

describe('credits', () => {
  it('are granted exactly, and only above zero', async () => {
    expect(await commands.grantCredits(provider.deps, { account: 'granted', credits: '0.1' })).toEqual({
      account: 'granted',
      balance: 0.1,
    })
    expect(await commands.grantCredits(provider.deps, { account: 'granted', credits: 0.2 })).toEqual({
      account: 'granted',
      balance: 0.3,
    })
    for (const credits of [0, -1, '0.0000001', '1e3', 'NaN', '']) {
      await expect(commands.grantCredits(provider.deps, { account: 'granted', credits })).rejects.toThrow(
        commands.CommandError,
      )
    }
    expect((await checkLedger(provider.deps.db)).ok).toBe(true)
  })

  it('of a demo account are granted once, over any number of starts', async () => {
    const demo = {
      account: 'demo',
      name: 'demo',
      environment: 'live' as const,
      apiKey: 'service_live_demo',
      signingSecret: 'whsec_demo',
      credits: 1000,
    }
    for (let i = 0; i < 3; i += 1) await importDemoKeys(provider.deps, [demo])
    const { body } = await provider.call('GET', '/v1/account', { key: demo.apiKey })
    expect(body).toMatchObject({ account_id: 'demo', balance: { credits: 1000 } })
    expect(await listKeys(provider.deps.db, { account: 'demo' })).toHaveLength(1)
  })
})

describe('the ledger check', () => {
  it('finds a balance that differs from its entries, and a reserve that never ended', async () => {
    const { sql } = provider.database
    await commands.grantCredits(provider.deps, { account: 'tampered', credits: 5 })
    await sql`update provider.accounts set available = 6 where id = 'tampered'`
    const id = randomUUID()
    await sql`insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, created_at)
      values (${id}, 'tampered', ${id}, 'live', 'm', '{}', 1, 'COMPLETED', now())`
    const { ok, problems } = await checkLedger(provider.deps.db)
    expect(ok).toBe(false)
    expect(problems).toEqual([
      'account tampered: balance 6, but its entries sum to 5',
      `request ${id}: COMPLETED without a reserve`,
    ])
    await sql`update provider.accounts set available = 5 where id = 'tampered'`
    await sql`delete from provider.requests where id = ${id}`
    expect((await checkLedger(provider.deps.db)).ok).toBe(true)
  })
})

describe('models', () => {
  it('appear and disappear per environment, at the next request', async () => {
    const sandbox = await provider.createKey()
    const live = await provider.createKey({ account: sandbox.account, environment: 'live' })
    const slug = 'vela-legacy-text-to-video'
    const listed = async (key: string) => {
      const { body } = await provider.call('GET', '/v1/models', { key })
      return body.data.some((model: { slug: string }) => model.slug === slug)
    }
    expect([await listed(sandbox.api_key), await listed(live.api_key)]).toEqual([false, false])
    await commands.setModelEnabled(provider.deps, { slug, environment: 'sandbox', enabled: true })
    expect([await listed(sandbox.api_key), await listed(live.api_key)]).toEqual([true, false])
    expect(await commands.listModels(provider.deps)).toContainEqual(
      expect.objectContaining({ slug, live: false, sandbox: true }),
    )
    await commands.setModelEnabled(provider.deps, { slug, environment: 'sandbox', enabled: false })
    expect(await listed(sandbox.api_key)).toBe(false)
    await expect(
      commands.setModelEnabled(provider.deps, { slug: 'nope', environment: 'live', enabled: true }),
    ).rejects.toThrow('there is no model nope')
  })
})

describe('faults', () => {
  it('are read from words, and refused when unknown or out of range', () => {
    expect(commands.parseFaults(['failed=0.5', 'slow_seconds=3'])).toEqual({ failed: 0.5, slow_seconds: 3 })
    for (const words of [[], ['failed'], ['failed=2'], ['failed=x'], ['explode=1']]) {
      expect(() => commands.parseFaults(words)).toThrow(commands.CommandError)
    }
    for (const word of ['failed=x', 'failed=', 'failed'])
      expect(() => commands.parseFaults([word])).toThrow('failed must be a number, not a string')
  })

  it('are for sandbox keys only', async () => {
    const live = await provider.createKey({ environment: 'live' })
    await expect(commands.setFaults(provider.deps, live.id, { failed: 1 })).rejects.toThrow('only sandbox keys')
    await expect(commands.setFaults(provider.deps, randomUUID(), { failed: 1 })).rejects.toThrow('there is no key')
  })
})

describe('cancel', () => {
  it('ends a running request, shows that to the client, and names requests that cannot be canceled', async () => {
    const key = await provider.createKey()
    await commands.setFaults(provider.deps, key.id, { slow_seconds: 600 })
    const { body } = await provider.call('POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: { prompt: 'x' } },
    })
    const status = async () =>
      (await provider.call('GET', `/v1/requests/${body.request_id}/status?logs=1`, { key: key.api_key })).body
    await eventually(async () => (await status()).status === 'IN_PROGRESS')
    expect(await commands.cancelRequest(provider.deps, body.request_id)).toEqual({
      request_id: body.request_id,
      status: 'CANCELED',
    })
    const result = await provider.call('GET', `/v1/requests/${body.request_id}`, { key: key.api_key })
    expect(result).toMatchObject({ status: 200, body: { status: 'CANCELED', cost: 0 } })
    await expect(commands.cancelRequest(provider.deps, body.request_id)).rejects.toThrow('is already CANCELED')
    await expect(commands.cancelRequest(provider.deps, randomUUID())).rejects.toThrow('there is no request')
  })
})
