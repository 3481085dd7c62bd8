import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'

const internalToken = 'a-token-of-at-least-32-characters-aaaa'

it('each listener trusts its own proxies only: a guesser cannot evade the limit by claiming another address', async () => {
  const { database, receiver, stop } = await withReceiver({
    settings: { internalToken, trustProxy: 'loopback', internalTrustProxy: 0 },
  })
  onTestFinished(stop)
  const ask = async (token: string, address: string) => {
    const headers = { authorization: `Bearer ${token}`, 'x-forwarded-for': address }
    return (await fetch(new URL('/api/keys', receiver.internalUrl), { headers })).status
  }
  await deliver(receiver.webhookUrl, failed().body, { headers: { 'x-forwarded-for': '198.51.100.7' } })
  const remote = async () => (await database.sql`select remote from mediadock.arrivals`)[0]?.['remote']
  await eventually(async () => (await remote()) !== undefined)
  expect(await remote()).toBe('198.51.100.7')

  expect(await ask(internalToken, '10.4.2.9')).toBe(200)
  for (let guess = 0; guess < 10; guess += 1) expect(await ask('wrong', '10.4.2.9')).toBe(401)
  expect(await ask('wrong', '10.4.2.10')).toBe(429)
  expect(await ask(internalToken, '10.4.2.10')).toBe(200)
})
