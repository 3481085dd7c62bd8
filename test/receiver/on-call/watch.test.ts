import { expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { textOf } from '../../../src/receiver/on-call/alerts.ts'
import { noteOutage } from '../../../src/receiver/on-call/issues.ts'
import { createWatch } from '../../../src/receiver/on-call/watch.ts'
import { QueryTimeoutError } from '../../../src/receiver/queries/deadline.ts'
import { withTestDatabase } from '../../support/database.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'

const settings = {
  stuckAfterSeconds: 120,
  webhookPublicUrl: 'https://hooks.example/webhooks',
  generationApiUrl: 'https://api.example',
  fetchRatePerMinute: 100,
  silentAfterSeconds: 300,
}

it('posts one notice of a lasting outage without Postgres, and records it as one issue afterwards', async () => {
  const begun = Date.parse('2026-03-04T03:00:00Z')
  let now = new Date(begun)
  const texts: string[] = []
  // No server listens on this port.
  const away = createPool({ url: 'postgres://nobody@127.0.0.1:9/none', max: 1 })
  onTestFinished(() => away.close())
  const watch = createWatch({
    db: away.db,
    clock: () => now,
    time: timeOf(() => now),
    logger: createLogger('silent'),
    fetch: async (_url, init) => {
      texts.push(String(init?.body))
      return new Response('ok')
    },
    url: 'https://hooks.example.com/services/secret',
    from: 'media.example.com',
    signal: new AbortController().signal,
    read: async () => ({
      ...settings,
      now,
      startedAt: new Date(begun),
      keys: keysOf(liveKey),
    }),
    onChanged: () => {},
  })
  for (const seconds of [0, 20, 31, 45]) {
    now = new Date(begun + seconds * 1000)
    await expect(watch()).rejects.toThrow()
    expect(texts).toHaveLength(seconds > 30 ? 1 : 0)
  }
  expect(texts[0]).toMatch(
    /\[critical\] mediadock media\.example\.com: Postgres cannot be used: Postgres cannot be reached.* database URL\. Webhooks are answered 503, and the provider sends them again\./,
  )

  const { url, sql } = await withTestDatabase()
  const back = createPool({ url, max: 2 })
  onTestFinished(() => back.close())
  // Two replicas saw the outage.
  for (const seconds of [60, 61])
    await noteOutage(back.db, { since: new Date(begun), now: new Date(begun + seconds * 1000), tells: true })
  expect(await sql`select cause, severity, untold from mediadock.issues where closed_at is not null`).toEqual([
    { cause: 'postgres_away', severity: 'critical', untold: 'closed' },
  ])
})

it('opens no critical issue for the webhooks that a recorded outage of Postgres refused', async () => {
  const begun = Date.parse('2026-03-04T03:00:00Z')
  const at = (seconds: number) => new Date(begun + seconds * 1000)
  let now = at(0)
  let isAway = true
  const { url, sql } = await withTestDatabase()
  const { db, close } = createPool({ url, max: 2 })
  onTestFinished(close)
  const watch = createWatch({
    db,
    clock: () => now,
    time: timeOf(() => now),
    logger: createLogger('silent'),
    fetch: async () => new Response('ok'),
    url: undefined,
    from: 'media.example.com',
    signal: new AbortController().signal,
    read: async () => {
      if (isAway) throw new QueryTimeoutError()
      return { ...settings, now, startedAt: at(0), keys: keysOf(liveKey) }
    },
    onChanged: () => {},
  })
  for (const seconds of [0, 40]) {
    now = at(seconds)
    await expect(watch()).rejects.toThrow()
  }
  await sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, webhook_id, key_name)
    values (${at(45)}, 'unavailable', 'postgres_failed', 503, 1, 'w', 'live')`
  isAway = false
  now = at(50)
  while ((await watch()).more);
  expect(await sql`select cause, severity, closed_at is null as open from mediadock.issues order by id`).toEqual([
    { cause: 'postgres_away', severity: 'critical', open: false },
    { cause: 'unavailable:postgres_failed', severity: 'notice', open: true },
  ])
})

it('tells of a closed issue without its advice', () => {
  const now = new Date('2026-03-04T03:02:00Z')
  const text = '17 of 88 arrivals were answered 503: Postgres failed. The final attempt is in 14 min.'
  const times = { opened_at: '2026-03-04 03:00:00+00', closed_at: now.toISOString() }
  expect(textOf({ severity: 'critical', text, untold: 'closed', ...times }, 'media.example.com', now)).toBe(
    '[closed] mediadock media.example.com: over: 17 of 88 arrivals were answered 503: Postgres failed. (since 03:00 UTC, for 2 min)',
  )
})
