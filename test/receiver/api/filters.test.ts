import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, testServers, type TestDatabase } from '../../support/database.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { failed, okAudio } from '../../support/webhooks.ts'
import { deliverAndSettle } from './calls.ts'
import { hostileFilters } from './hostile-filters.ts'

const lists = [
  '/api/deliveries',
  '/api/arrivals',
  '/api/requests',
  '/api/quarantine',
  '/api/audit',
  '/api/reconciler/runs',
  '/api/minutes',
  '/api/deliveries.csv',
  '/api/deliveries.ndjson',
  '/api/arrivals.csv',
  '/api/arrivals.ndjson',
]
const pages = [
  '/',
  '/now/charts',
  '/deliveries',
  '/deliveries?view=arrivals',
  '/deliveries/replay',
  '/deliveries.csv',
  '/arrivals.ndjson',
  '/requests',
  '/parked',
  '/parked?view=quarantine',
  '/parked?view=parked',
  '/parked/verify',
  '/parked/verified',
  '/reconciler',
  '/reconciler/awaited',
  '/audit',
  '/keys',
]

describe.each(testServers)('whatever stands behind the ?, on the %s server', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  beforeAll(async () => {
    database = await createTestDatabase(server)
    receiver = await startTestReceiver({ databaseUrl: database.url })
    await deliverAndSettle({ receiver, database }, failed(), { webhookId: 'wh_1' })
    await deliverAndSettle({ receiver, database }, okAudio(), { webhookId: 'wh_2' })
  })
  afterAll(async () => {
    await receiver.stop()
    await database.drop()
  })

  const ask = (path: string, headers: Record<string, string>) => fetch(new URL(path, receiver.internalUrl), { headers, redirect: 'manual' })

  it.each(lists)('GET %s answers it, or says what is wrong with it', async (path) => {
    const amiss: unknown[] = []
    for (const { query, wrong } of hostileFilters) {
      const answer = await ask(`${path}?${query}`, { accept: 'application/json' })
      const text = await answer.text()
      const good = answer.status === 200 && !wrong
      const refused =
        answer.status === 400 && /^\{"error":\{"type":"invalid_request_error","code":"invalid_filter","message":".+: .+"\}\}$/.test(text)
      if (!good && !refused) amiss.push([query.slice(0, 80), answer.status, text.slice(0, 200)])
    }
    expect(amiss).toEqual([])
  })

  it.each(pages)('the page %s answers it in words', async (path) => {
    const amiss: unknown[] = []
    for (const { query } of hostileFilters) {
      const answer = await ask(`${path}${path.includes('?') ? '&' : '?'}${query}`, { accept: 'text/html' })
      const text = await answer.text()
      if (answer.status !== 200 && !(answer.status === 400 && /role="alert">|"code":"invalid_filter"/.test(text)))
        amiss.push([query.slice(0, 80), answer.status, text.slice(0, 200)])
    }
    expect(amiss).toEqual([])
  })

  it.each([
    'x',
    '9'.repeat(40),
    Buffer.from('9999999999999999.999999999999999999').toString('base64url'),
    Buffer.from('1.1').toString('base64url') + '=',
    'a'.repeat(200),
  ])('a tail goes on after Last-Event-ID %s, or says that it cannot', async (id) => {
    const stop = new AbortController()
    const answer = await fetch(new URL('/api/arrivals', receiver.internalUrl), {
      headers: { accept: 'text/event-stream', 'last-event-id': id },
      signal: stop.signal,
    })
    expect([200, 400]).toContain(answer.status)
    stop.abort()
  })

  it.each([
    ['an array', []],
    ['numbers', { min_ack_ms: 9_007_199_254_740_991 }],
    ['a negative number', { min_arrivals: -1 }],
    ['a fraction', { min_skew_seconds: 0.5 }],
    ['a number beyond int4', { min_skew_seconds: 2_147_483_648 }],
    ['an object', { q: { a: 1 } }],
    ['a list', { key_name: ['live'] }],
    ['null', { q: null }],
    ['NUL', { reason: 'a\0' }],
    ['a lone surrogate', { q: 'abcd\ud800' }],
    ['a lone surrogate in a key', { key_name: '\udfff' }],
    ['an odd offset', { since: '2026-01-01T00:00:00+23:59' }],
    ['nesting', `{"q":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['a prototype', '{"__proto__":{"q":"abcd"}}'],
  ])('a filter of a replay that is %s is refused', async (_what, filter) => {
    const answer = await fetch(new URL('/api/deliveries/replay', receiver.internalUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `{"dry_run":true,"filter":${typeof filter === 'string' ? filter : JSON.stringify(filter)}}`,
    })
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining('"error"')])
  })

  it.each(['0', '60', '61', '-1', '1e1', '1&wait=2', '%00', '', 'abc', '00', '5.0'])('a wait of %s is taken or refused', async (wait) => {
    const answer = await fetch(new URL(`/api/results/2f0d6c1e-0000-4000-8000-000000000001?wait=${wait}`, receiver.internalUrl))
    expect([400, 404]).toContain(answer.status)
  })
})
