import { randomUUID } from 'node:crypto'
import { sql } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { long } from '../../chaos/length.ts'
import { createTestDatabase, preferredServer, usualServers, type TestDatabase } from '../../support/database.ts'
import { aroundStatements } from '../../support/statements.ts'
import { failed, okAudio } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, store } from '../../support/worker.ts'

/* Statements that cross in Postgres: no delivery waits for a lease without need. The clock moves by less than a lease. */

const requestsPerRound = 250

describe.each(usualServers)('concurrent landings (%s)', (server) => {
  const isPreferred = server === preferredServer
  const rounds = long ? 60 : isPreferred ? 30 : 5
  /** So many deadlocks are enough for the short form, however few rounds they took. */
  const enough = long ? Infinity : isPreferred ? 4 : 1
  let database: TestDatabase
  beforeAll(async () => {
    database = await createTestDatabase(server)
    await database.sql.unsafe(`alter database ${new URL(database.url).pathname.slice(1)} set deadlock_timeout = '20ms'`)
  })
  afterAll(() => database.drop())

  const pending = async () => (await database.sql`select count(*)::int as n from mediadock.inbox`)[0]?.['n']
  const deadlocks = async () => {
    await database.sql`select pg_stat_force_next_flush()`
    const [row] =
      await database.sql`select deadlocks::int as n from pg_stat_database where datname = current_database()`
    return Number(row?.['n'])
  }

  it(`two big batches on the same requests and a tracker in the opposite order, concurrently up to ${rounds} times`, async () => {
    const deps = createTestWorker({ databaseUrl: database.url })
    let unlanded = 0
    let round = 0
    for (; round < rounds && (await deadlocks()) < enough; round += 1) {
      const ids = Array.from({ length: requestsPerRound }, () => randomUUID()).toSorted()
      // Of each request two of each kind: both batches hold something of nearly all of them.
      const bodies = [...ids, ...ids].flatMap((id) => [failed(id).body, okAudio(id).body])
      await store(
        deps.db,
        bodies.toSorted(() => Math.random() - 0.5),
      )
      deps.setNow(new Date(Date.now() + 1000))
      const rows = ids.toReversed().map((request_id) => ({ request_id, key_name: 'live' }))
      const tracker = async () => {
        // A service's own transaction, which may be the one that has to give way.
        await database.sql
          .begin(async (tx) => {
            for (let at = 0; at < rows.length; at += 50) {
              await tx`insert into mediadock.requests ${tx(rows.slice(at, at + 50))} on conflict do nothing`
              await tx`select pg_sleep(${Math.random() * 0.03})`
            }
          })
          .catch(() => {})
      }
      await Promise.allSettled([workOnce(deps), workOnce(deps), tracker()])
      // Deliveries that stood in each other's way were given back or put off by a second. No lease ends meanwhile.
      for (let again = 0; again < 5 && (await pending()) > 0; again += 1) {
        deps.setNow(new Date(deps.clock().getTime() + 1000))
        await workOnce(deps)
      }
      unlanded += Number(await pending())
      await database.sql`truncate mediadock.inbox, mediadock.deliveries, mediadock.requests, mediadock.media, mediadock.attempts`
    }
    process.stderr.write(
      `${server}: ${await deadlocks()} deadlocks in ${round} rounds, ${unlanded} deliveries left to a lease\n`,
    )
    expect(unlanded).toBe(0)
  }, 240_000)

  it('a batch that Postgres canceled is returned to the inbox', async () => {
    const deps = createTestWorker({ databaseUrl: database.url })
    await store(
      deps.db,
      Array.from({ length: 20 }, () => failed().body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    let statements = 0
    const db = aroundStatements(deps.db, (run) => {
      // The claim, then the landing, whose connection is ended under it.
      statements += 1
      return statements === 2 ? deps.db.execute(sql`select pg_terminate_backend(pg_backend_pid())`) : run()
    })
    await expect(workOnce({ ...deps, db })).rejects.toThrow()
    expect(await workOnce(deps)).toMatchObject({ claimed: 20, landed: 20 })
  })
})
