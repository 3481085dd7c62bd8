import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { openProvider } from '../../../src/provider/operating/commands.ts'
import { amend, createQueueView, placeOf, type QueueKey } from '../../../src/provider/queue/queue-view.ts'
import { claimRequests } from '../../../src/provider/queue/requests.ts'
import { type QueueViews, readStatuses } from '../../../src/provider/queue/status-reader.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'

const walk = { readAtMs: 0, tookMs: 1 }
const inOrder = (a: QueueKey, b: QueueKey) => a.turn - b.turn || a.seq - b.seq
const viewOf = (keys: readonly QueueKey[], took = walk) => {
  const sorted = keys.toSorted(inOrder)
  return createQueueView(
    sorted.map(({ turn }) => turn),
    sorted.map(({ seq }) => seq),
    took,
  )
}
const queue = fc.uniqueArray(fc.record({ turn: fc.nat(5), seq: fc.nat(40) }), {
  selector: ({ seq }) => seq,
  maxLength: 30,
})

describe('a view of the queue', () => {
  it('gives every request the position that a count would, inside the view or not', () => {
    fc.assert(
      fc.property(queue, fc.record({ turn: fc.nat(6), seq: fc.nat(41) }), (keys, key) => {
        expect(placeOf(viewOf(keys), key)).toBe(keys.filter((other) => inOrder(other, key) < 0).length)
      }),
    )
  })

  it('equals a later read after an update', () => {
    fc.assert(
      fc.property(queue, queue, (before, after) => {
        const view = viewOf(before)
        for (const key of before) amend(view, key, false)
        for (const key of [...after, ...after]) amend(view, key, true)
        expect(view).toEqual({ ...viewOf(after), maxAgeMs: view.maxAgeMs })
      }),
    )
  })

  it('of a short queue is never reused; a slow walk makes later walks rarer', () => {
    const long = Array.from({ length: 501 }, (_, seq) => ({ turn: 1, seq }))
    expect(viewOf(long.slice(1)).maxAgeMs).toBe(0)
    expect(viewOf(long).maxAgeMs).toBe(2000)
    expect(viewOf(long, { readAtMs: 0, tookMs: 200 }).maxAgeMs).toBe(4000)
  })
})

describe('positions in a long queue', () => {
  let database: TestDatabase
  let provider: ReturnType<typeof openProvider>
  let views: QueueViews
  const ids: string[] = []

  const ask = async (...requestIds: string[]) => {
    const questions = requestIds.map((requestId) => ({
      requestId,
      accountId: 'a',
      environment: 'live' as const,
      withLogs: false,
    }))
    return (await readStatuses(provider.deps.db, views, questions)).map((status) => status?.queue_position)
  }
  const insert = async (id: string, turn: number) => {
    await database.sql`
      insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, turn, created_at)
      values (${id}, 'a', ${randomUUID()}, 'live', 'aurora-image', '{}', 4, 'IN_QUEUE', ${turn}, now())`
  }
  const view = () => views.get('live')?.view

  beforeAll(async () => {
    database = await createTestDatabase()
    provider = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32) })
  })
  afterAll(async () => {
    await provider.close()
    await database.drop()
  })
  beforeEach(async () => {
    views = new Map()
    ids.length = 0
    await database.sql`truncate provider.requests`
    const rows = await database.sql<{ id: string }[]>`
      insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, turn, created_at)
      select gen_random_uuid(), 'a', gen_random_uuid(), 'live', 'aurora-image', '{}', 4, 'IN_QUEUE', 10 + turn, now() from generate_series(1, 600) turn
      returning id`
    ids.push(...rows.map(({ id }) => id))
  })
  const claim = (limit: number) => {
    return claimRequests(provider.deps.db, { environment: 'live', limit, leaseSeconds: 0, now: postgresTime() })
  }

  it('come from one shared view, while states are current', async () => {
    expect(await ask(ids[599] ?? '', ids[0] ?? '')).toEqual([599, 0])
    const first = view()
    // However slow this machine is.
    if (first) first.readAtMs = Infinity
    await claim(3)
    expect(await ask(ids[0] ?? '', ids[599] ?? '')).toEqual([null, 598])
    expect(view()).toBe(first)
  })

  it('include newer submits as soon as these were read', async () => {
    expect(await ask(ids[5] ?? '')).toEqual([5])
    const early = randomUUID()
    await insert(early, 1)
    expect(await ask(early)).toEqual([0])
    expect(await ask(ids[5] ?? '')).toEqual([6])
  })

  it('are read again when the view is too old', async () => {
    await ask(ids[0] ?? '')
    await claim(3)
    const first = view()
    if (first) first.readAtMs -= first.maxAgeMs
    expect(await ask(ids[599] ?? '')).toEqual([596])
  })

  it('are refreshed earlier without delaying a caller', async () => {
    await ask(ids[0] ?? '')
    await claim(3)
    const first = view()
    if (first) first.readAtMs -= first.maxAgeMs * 0.9
    await ask(ids[599] ?? '')
    await eventually(() => view() !== first)
    expect(await ask(ids[599] ?? '')).toEqual([596])
  })
})
