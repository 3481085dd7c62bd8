import { expect, test } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createKeySets } from '../../../src/receiver/intake/key-sets.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'

const url = 'https://rest.fal.ai/.well-known/jwks.json'
const x = (byte: number) => Buffer.alloc(32, byte).toString('base64url')
const setOf = (...bytes: number[]) => JSON.stringify({ keys: bytes.map((byte) => ({ x: x(byte) })) })
const own = withSources(
  keysOf(liveKey),
  JSON.stringify([
    { name: 'fal', kind: 'fal', account: 'user_1', keys: [{ name: 'f', api_key: 'a' }] },
    { name: 'dreams', kind: 'luma', keys: [{ name: 'l', api_key: 'a' }] },
  ]),
)

/** Key sets on a clock of their own, and what their URL answers. */
function setsThat(answer: (url: string, init: RequestInit | undefined) => Response | Promise<Response>) {
  let nowMs = 0
  const calls: string[] = []
  const fetch = async (input: string | URL | Request, init?: RequestInit) => {
    calls.push(String(input))
    return answer(String(input), init)
  }
  const stopping = new AbortController()
  const cut = stopping.signal
  const sets = createKeySets({ fetch, clock: () => new Date(nowMs), logger: createLogger('silent'), cut })
  const fal = () => sets.apply(own).sources.get('fal') ?? expect.fail()
  return {
    calls,
    known: () => fal().secrets.map(({ signingSecret }) => signingSecret),
    doubt: () => sets.doubt(fal()),
    sets,
    stop: () => stopping.abort(),
    pass: async (minutes: number, keys = own) => {
      nowMs += minutes * 60_000
      await sets.runOnce(keys)
    },
  }
}

test('the keys of the set verify for the account, under the first key of the source', async () => {
  const { sets, known, calls, pass } = setsThat(() => new Response(setOf(1, 2)))
  expect(known()).toEqual([])
  await pass(0)
  expect(known()).toEqual([x(1), x(2)])
  const keys = sets.apply(own)
  expect(keys.sources.get('fal')?.secrets[0]).toEqual({ name: 'f', signingSecret: x(1), account: 'user_1' })
  expect(keys.byName.get('f')?.source).toBe(keys.sources.get('fal'))
  expect(keys.sources.get('dreams')).toBe(own.sources.get('dreams'))
  expect(sets.apply(own)).toBe(keys)
  expect(calls).toEqual([url])
})

test('a set is fetched again after half a day, and after a doubt at most once a minute', async () => {
  const { calls, pass, doubt, known } = setsThat(() => new Response(setOf(calls.length)))
  await pass(0)
  await pass(60)
  expect(calls).toHaveLength(1)
  for (let second = 0; second < 60; second += 1) {
    doubt()
    await pass(1 / 60)
  }
  expect(calls).toHaveLength(2)
  expect(known()).toEqual([x(2)])
  await pass(12 * 60)
  expect(calls).toHaveLength(3)
})

test.each<[string, () => Response]>([
  ['an outage', () => Response.error()],
  ['a 500', () => new Response(setOf(9), { status: 500 })],
  ['a redirect', () => new Response(null, { status: 302, headers: { location: 'https://other.test' } })],
  ['an empty set', () => new Response('{"keys":[]}')],
  ['no JSON', () => new Response('<html>')],
  ['a huge set', () => new Response(`{"keys":[${'0,'.repeat(3_000_000)}0]}`)],
])('%s keeps the earlier keys, and is tried again after a minute', async (_, broken) => {
  let answer = () => new Response(setOf(1))
  const { known, pass, calls } = setsThat(() => answer())
  await pass(0)
  answer = broken
  await pass(13 * 60)
  await pass(0.5)
  expect(known()).toEqual([x(1)])
  expect(calls).toHaveLength(2)
  answer = () => new Response(setOf(2))
  await pass(0.5)
  expect(known()).toEqual([x(2)])
})

test('a slow set holds up no other one, keeps the earlier keys meanwhile, and ends with the process', async () => {
  const other = 'https://other.test/jwks.json'
  const more = [
    { name: 'fal', kind: 'fal', account: 'user_1', keys: [{ name: 'f', api_key: 'a' }] },
    { name: 'second', kind: 'fal', account: 'user_2', key_set_url: other, keys: [{ name: 's', api_key: 'b' }] },
  ]
  const both = withSources(keysOf(liveKey), JSON.stringify(more))
  const reading = Promise.withResolvers<void>()
  let isSlow = false
  const { sets, stop, calls, pass } = setsThat(async (at, init) => {
    if (!isSlow || at === other) return new Response(setOf(isSlow ? 3 : 1))
    // The head at once, and never the end of the body.
    const body = new ReadableStream({
      start: (controller) => {
        init?.signal?.addEventListener('abort', () => controller.error(init.signal?.reason))
        reading.resolve()
      },
    })
    return new Response(body)
  })
  const known = (name: string) =>
    sets
      .apply(both)
      .sources.get(name)
      ?.secrets.map(({ signingSecret }) => signingSecret)
  await sets.runOnce(both)
  isSlow = true
  for (const source of both.sources.values()) sets.doubt(source)
  let ended = false
  const round = pass(1, both).then(() => (ended = true))
  await reading.promise
  await expect.poll(() => known('second')).toEqual([x(3)])
  expect(known('fal')).toEqual([x(1)])
  expect(ended).toBe(false)
  stop()
  await expect.poll(() => ended).toBe(true)
  await round
  expect(known('fal')).toEqual([x(1)])
  expect(calls).toHaveLength(4)
})
