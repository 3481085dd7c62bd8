import { describe, expect, it } from 'vitest'
import { isPublicAddress } from '../../../src/provider/webhooks/public-address.ts'
import { resolve } from '../../../src/provider/webhooks/resolver.ts'
import { checkWebhookUrl } from '../../../src/provider/webhooks/webhook-url.ts'

const resolveTo =
  (...addresses: string[]) =>
  async () =>
    addresses
const check = (url: string, rules: { allow?: string[]; addresses?: string[] } = {}) =>
  checkWebhookUrl(url, { allow: rules.allow ?? [], resolve: resolveTo(...(rules.addresses ?? [])) })

describe('a webhook_url', () => {
  it.each([
    'https://hooks.example.com/path?query=1',
    'https://hooks.example.com:8443/',
    'https://hooks.example.com:1024/',
    'https://hooks.example.com:65535/',
    'https://8.8.8.8/',
    'https://[2606:4700::1111]/',
    'https://bücher.example/',
  ])('%s is accepted', async (url) => {
    expect(await check(url)).toBe(new URL(url).href)
  })

  it.each([
    ['http', 'http://hooks.example.com/'],
    ['another scheme', 'ftp://hooks.example.com/'],
    ['no URL', 'hooks.example.com'],
    ['empty', ''],
    ['credentials', 'https://user:pass@hooks.example.com/'],
    ['a user alone', 'https://user@hooks.example.com/'],
    ['port 22', 'https://hooks.example.com:22/'],
    ['port 1023', 'https://hooks.example.com:1023/'],
    ['2,049 characters', `https://hooks.example.com/${'x'.repeat(2049 - 26)}`],
    ['NUL', 'https://hooks.example.com/\0'],
    ['a space before it', ' https://hooks.example.com/'],
    ['a space after it', 'https://hooks.example.com/ '],
    ['a space in its path', 'https://hooks.example.com/a b'],
    ['a line break after it', 'https://hooks.example.com/\n'],
    ['a line break in its name', 'https://hooks.exa\r\nmple.com/'],
    ['a tab in its scheme', 'htt\tps://hooks.example.com/'],
    ['a control character', 'https://hooks.example.com/\u0001'],
    ['DEL', 'https://hooks.example.com/\u007f'],
    ['a no-break space', 'https://hooks.example.com/\u00a0'],
    ['a zero-width space in its name', 'https://hooks\u200b.example.com/'],
    ['a soft hyphen in its name', 'https://ho\u00adoks.example.com/'],
    ['a line separator', 'https://hooks.example.com/\u2028'],
    ['a lone surrogate', 'https://hooks.example.com/\ud800'],
    ['localhost', 'https://localhost/'],
    ['localhost with a dot', 'https://LOCALHOST./'],
    ['a name below localhost', 'https://a.localhost/'],
    ['an internal name', 'https://metadata.google.internal/'],
    ['a .local name', 'https://printer.local/'],
    ['loopback', 'https://127.0.0.1/'],
    ['loopback with a dot', 'https://127.0.0.1./'],
    ['decimal', 'https://2130706433/'],
    ['octal', 'https://0177.0.0.1/'],
    ['hexadecimal', 'https://0x7f.0.0.1/'],
    ['short', 'https://127.1/'],
    ['zero', 'https://0/'],
    ['full-width digits', 'https://１２７.０.０.１/'],
    ['private 10', 'https://10.0.0.1/'],
    ['private 172.16', 'https://172.31.255.255/'],
    ['private 192.168', 'https://192.168.1.1/'],
    ['carrier-grade NAT', 'https://100.64.0.1/'],
    ['AWS metadata', 'https://169.254.169.254/'],
    ['Azure metadata', 'https://168.63.129.16/'],
    ['Alibaba metadata', 'https://100.100.100.200/'],
    ['AWS metadata over IPv6', 'https://[fd00:ec2::254]/'],
    ['IPv6 loopback', 'https://[::1]/'],
    ['IPv6 unspecified', 'https://[::]/'],
    ['IPv4-mapped', 'https://[::ffff:127.0.0.1]/'],
    ['IPv4-mapped in hexadecimal', 'https://[::ffff:7f00:1]/'],
    ['IPv4-compatible', 'https://[::127.0.0.1]/'],
    ['NAT64', 'https://[64:ff9b::7f00:1]/'],
    ['6to4', 'https://[2002:7f00:1::]/'],
    ['Teredo', 'https://[2001:0:7f00:1::]/'],
    ['link-local', 'https://[fe80::1]/'],
    ['site-local', 'https://[fec0::1]/'],
    ['unique local', 'https://[fc00::1]/'],
    ['multicast', 'https://224.0.0.1/'],
    ['broadcast', 'https://255.255.255.255/'],
    ['documentation', 'https://192.0.2.1/'],
    ['benchmarking', 'https://198.18.0.1/'],
    ['reserved', 'https://240.0.0.1/'],
  ])('with %s is refused with webhook_url_invalid', async (_name, url) => {
    await expect(check(url)).rejects.toMatchObject({ status: 400, code: 'webhook_url_invalid' })
  })

  it('whose name has any address that is not public is refused', async () => {
    await expect(check('https://rebind.example/', { addresses: ['8.8.8.8', '10.0.0.1'] })).rejects.toMatchObject({
      code: 'webhook_url_invalid',
    })
    await expect(check('https://rebind.example/', { addresses: ['::ffff:10.0.0.1'] })).rejects.toMatchObject({
      code: 'webhook_url_invalid',
    })
  })

  it('whose name does not resolve is accepted', async () => {
    expect(await check('https://not-yet.example/')).toBe('https://not-yet.example/')
  })

  it('of an allowed origin may be plain http and private, of another origin on the same host not', async () => {
    const allow = ['http://127.0.0.1:3000']
    expect(await check('http://127.0.0.1:3000/webhooks', { allow })).toBe('http://127.0.0.1:3000/webhooks')
    for (const url of ['http://127.0.0.1:3001/', 'https://127.0.0.1:3000/', 'http://localhost:3000/']) {
      await expect(check(url, { allow })).rejects.toMatchObject({ code: 'webhook_url_invalid' })
    }
  })
})

describe('isPublicAddress', () => {
  it('refuses what is no address', () => {
    for (const text of ['', 'example.com', '1.2.3', '::g']) expect(isPublicAddress(text)).toBe(false)
  })
})

describe('resolve', () => {
  it('knows the hosts file, and answers none for a name that does not exist', async () => {
    expect(await resolve('localhost', 1000)).toContain('127.0.0.1')
    expect(await resolve('does-not-exist.invalid', 1000)).toEqual([])
  })
})
