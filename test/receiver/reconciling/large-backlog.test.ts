import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { maxCounted } from '../../../src/receiver/domain/limits.ts'
import { readBacklog } from '../../../src/receiver/gauges/backlog.ts'
import { countOverdue } from '../../../src/receiver/gauges/overdue.ts'
import { duePollsOfRuns } from '../../../src/receiver/reconciling/due.ts'
import { claimDue } from '../../../src/receiver/reconciling/poll-claims.ts'
import { parseKeys } from '../../../src/receiver/sources/keys.ts'
import { createTestDatabase, testServers, type TestDatabase } from '../../support/database.ts'
import { countingPool } from '../../support/rows-read.ts'
import { claiming } from '../../support/worker.ts'

/*
 * Where the quota is far below what comes in, there are far more results that are due to be
 * completed than will ever be: what every replica asks all the time must not read them.
 */

const incomplete = maxCounted + 5000
const keys = parseKeys('[{"name": "live", "signing_secret": "' + 's'.repeat(32) + '", "api_key": "k"}]')

describe.each(testServers)('reading a large backlog, %s', (server) => {
  let database: TestDatabase
  let reading: ReturnType<typeof countingPool>['reading']
  let close: () => Promise<void>

  beforeAll(async () => {
    database = await createTestDatabase(server)
    ;({ reading, close } = countingPool(database.url))
    await database.sql`set session_replication_role = replica`
    await database.sql`
      insert into mediadock.requests (request_id, status, model, key_name, key_source, media_complete, source, tracked_at, landed_at, next_poll_at)
      select gen_random_uuid(), 'COMPLETED', 'lyra-audio', 'live', 'landed', false, 'webhook', now() - interval '1 hour', now() - interval '1 hour', now() - interval '1 minute'
      from generate_series(1, ${incomplete}::int)`
    await database.sql`
      insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at)
      values (gen_random_uuid(), 'live', now() - interval '1 hour', null), (gen_random_uuid(), null, now() - interval '2 hours', null),
        (gen_random_uuid(), 'gone', now(), now() - interval '1 second'), (gen_random_uuid(), 'gone', now(), now() + interval '1 hour'),
        (gen_random_uuid(), 'live', now(), null)`
    // Given up as lost, which they stay.
    await database.sql`
      insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at, poll_outcome)
      select gen_random_uuid(), case when n % 2 = 0 then 'live' else 'gone' end, now() - interval '9 days', 'infinity', 'lost' from generate_series(1, 1000) as n`
  })
  afterAll(async () => {
    await close()
    await database.drop()
  })

  const when = () => ({ now: new Date(), stuckAfterSeconds: 600 })

  it.each(['missing', 'fresh'])('is bounded, with %s statistics', async (statistics) => {
    if (statistics === 'fresh') await database.sql`analyze mediadock.requests`
    const overdue = await reading((db) => countOverdue(db, when()))
    expect(overdue).toEqual({ answer: 1002, read: expect.any(Number) })
    expect(overdue.read).toBeLessThan(1100)

    const backlog = await reading((db) => readBacklog(db, { ...when(), fetchRatePerMinute: 100, keys }))
    expect(backlog.answer).toMatchObject({
      due: maxCounted + 3,
      due_capped: true,
      incomplete: maxCounted,
      incomplete_capped: true,
    })
    expect(backlog.read).toBeLessThan(maxCounted * 2 + 1100)
  })

  it('claims unpolled requests and those of unknown keys, and reads no others', async () => {
    const claims = claiming({ clock: () => new Date(), logger: createLogger('silent') })
    const deps = { keys: () => keys, time: postgresTime, ...claims, stuckAfterSeconds: 600 }
    const claimed = await reading((db) => claimDue({ ...deps, db }, { limit: 10, resting: new Set() }, duePollsOfRuns))
    expect(claimed.answer.map(({ key_name }) => key_name)).toEqual([null, 'live', 'gone'])
    expect(claimed.read).toBeLessThan(100)
  })
})
