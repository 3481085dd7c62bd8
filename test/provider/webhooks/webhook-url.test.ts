import { describe, expect, it } from 'vitest'
import { isPublicAddress } from '../../../src/platform/outward/public-url.ts'
import { resolve } from '../../../src/platform/outward/resolver.ts'
import { checkWebhookUrl } from '../../../src/provider/webhooks/webhook-url.ts'

const resolveTo =
  (...addresses: string[]) =>
  async () =>
    addresses
const check = (url: string, rules: { allow?: string[]; addresses?: string[] } = {}) =>
  checkWebhookUrl(url, { allow: rules.allow ?? [], resolve: resolveTo(...(rules.addresses ?? [])) })

// The accepted URLs and addresses are in test/bad-input/cases/webhook-urls.ts.
describe('a webhook_url', () => {
  it('is accepted if its name does not resolve', async () => {
    expect(await check('https://not-yet.example/')).toBe('https://not-yet.example/')
  })

  it('may be plain http and private for an allowed origin only, not for another origin of the same host', async () => {
    const allow = ['http://127.0.0.1:3000']
    expect(await check('http://127.0.0.1:3000/webhooks', { allow })).toBe('http://127.0.0.1:3000/webhooks')
    for (const url of ['http://127.0.0.1:3001/', 'https://127.0.0.1:3000/', 'http://localhost:3000/']) {
      await expect(check(url, { allow })).rejects.toMatchObject({ code: 'webhook_url_invalid' })
    }
  })
})

describe('isPublicAddress', () => {
  it('refuses a text that is not an address', () => {
    for (const text of ['', 'example.com', '1.2.3', '::g']) expect(isPublicAddress(text)).toBe(false)
  })
})

describe('resolve', () => {
  it('reads the hosts file, and returns no address for a name that does not exist', async () => {
    expect(await resolve('localhost', 1000)).toContain('127.0.0.1')
    expect(await resolve('does-not-exist.invalid', 1000)).toEqual([])
  })
})
