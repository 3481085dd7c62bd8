import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { maxOnBadge, readCounters } from '../../../src/receiver/queries/trouble.ts'
import { createTestDatabase, usualServers, type TestDatabase } from '../../support/database.ts'

describe.each(usualServers)('counts of items that need attention, %s', (server) => {
  let database: TestDatabase
  let pool: Pool

  beforeAll(async () => {
    database = await createTestDatabase(server)
    pool = createPool({ url: database.url, max: 1 })
  })
  afterAll(async () => {
    await pool.close()
    await database.drop()
  })

  const count = () => readCounters(pool.db, { now: new Date(), stuckAfterSeconds: 600 })

  it('are absent at first', async () => {
    expect(await count()).toEqual({ issues: 0, critical: 0, parked: 0, quarantined: 0, overdue: 0 })
  })

  it('include open unmuted issues, parked, quarantined and overdue items, each up to its bound', async () => {
    const { sql } = database
    await sql`insert into mediadock.issues (cause, severity, text, href, opened_at, seen_at, closed_at, muted_until) values
      ('open', 'warning', '', '/', now(), now(), null, null), ('was muted', 'critical', '', '/', now(), now(), null, now() - interval '1 minute'),
      ('muted', 'warning', '', '/', now(), now(), null, now() + interval '1 minute'), ('notice', 'notice', '', '/', now(), now(), null, null), ('closed', 'critical', '', '/', now(), now(), now(), null)`
    await sql`insert into mediadock.quarantine (arrived_at, reason, headers, body) select now(), 'no_matching_secret', '{}', '' from generate_series(1, 3)`
    for (const ago of [3600, 60])
      await sql`insert into mediadock.requests (request_id, tracked_at) values (${randomUUID()}, now() - make_interval(secs => ${ago}))`
    await sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body, parked_reason)
      select gen_random_uuid(), n::text, 'live', now(), now(), '{}', '', case when n > 10 then 'not_json' end from generate_series(1, ${maxOnBadge + 15}::int) as n`
    expect(await count()).toEqual({ issues: 2, critical: 1, parked: maxOnBadge, quarantined: 3, overdue: 1 })
  })

  it('leave out refused arrivals of strangers once the sender is known', async () => {
    const { sql } = database
    await sql`truncate mediadock.quarantine`
    await sql`insert into mediadock.known_senders (key_name, source, last_at) values ('live', '198.51.100.7', now())`
    const [known] = await sql`select request_id from mediadock.requests limit 1`
    for (const [reason, source, requestId] of [
      ['no_matching_secret', '203.0.113.1', null],
      ['missing_header', '198.51.100.7', null],
      ['no_matching_secret', '198.51.100.7', null],
      ['missing_header', '203.0.113.1', known?.['request_id']],
    ] as const)
      await sql`insert into mediadock.quarantine (arrived_at, reason, headers, body, source, request_id)
        values (now(), ${reason}, '{}', '', ${source}, ${requestId})`
    expect((await count()).quarantined).toBe(2)
  })
})
