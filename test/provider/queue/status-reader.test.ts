import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openProvider } from '../../../src/provider/operating/commands.ts'
import { type QueueViews, readStatuses } from '../../../src/provider/queue/status-reader.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

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
  const serve = (some: string[]) =>
    database.sql`update provider.requests set status = 'IN_PROGRESS' where id = any (${some}::uuid[])`

  it('are read at most every two seconds, while states are current', async () => {
    expect(await ask(ids[599] ?? '', ids[0] ?? '')).toEqual([599, 0])
    const view = views.get('live') ?? expect.fail('no view')
    expect(view.isUsableUntilMs - performance.now()).toBeGreaterThan(1000)
    // However slow this machine is.
    view.isUsableUntilMs = Infinity
    await serve(ids.slice(0, 3))
    expect(await ask(ids[0] ?? '', ids[599] ?? '', ids[300] ?? '')).toEqual([null, 599, 300])
    view.isUsableUntilMs = performance.now()
    expect(await ask(ids[599] ?? '')).toEqual([596])
  })

  it('are read for every answer while at most 500 requests wait', async () => {
    await serve(ids.slice(0, 100))
    expect(await ask(ids[599] ?? '')).toEqual([499])
    await serve(ids.slice(100, 101))
    expect(await ask(ids[599] ?? '')).toEqual([498])
  })

  it('count every request that is served before, by turn and then by arrival', async () => {
    const [tied] = await database.sql<{ id: string }[]>`
      insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, turn, created_at)
      values (gen_random_uuid(), 'a', gen_random_uuid(), 'live', 'aurora-image', '{}', 4, 'IN_QUEUE', 13, now()) returning id`
    expect(await ask(ids[2] ?? '', tied?.id ?? '', ids[3] ?? '')).toEqual([2, 3, 4])
  })
})
