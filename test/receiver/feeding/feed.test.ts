import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { migrations } from '../../../src/receiver/domain/migrations.ts'
import { createSequencer } from '../../../src/receiver/feeding/sequencer.ts'
import { replayDelivery } from '../../../src/receiver/landing/replay.ts'
import { pruneOnce } from '../../../src/receiver/upkeep/retention.ts'
import { createTestDatabase, testServers, usualServers, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../../support/own-packaged-postgres.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

const never = new AbortController().signal

describe.each(usualServers)('a change of the feed (%s)', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver

  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true })
    ;({ database, receiver, stand } = its)
    return its.stop
  })

  /** The changes of a request, once there are so many. */
  const changesOf = (requestId: string, count: number) =>
    eventually(async () => {
      const rows = await database.sql<{ status: string; media_complete: boolean }[]>`
        select status, media_complete from mediadock.feed where request_id = ${requestId} order by position`
      return rows.length >= count && rows.map((row) => `${row.status} ${row.media_complete}`)
    })
  const settled = async () => {
    await database.sql`select mediadock.sequence_changes(null, 1000)`
  }

  it('is written for the first link, and for the full result of a poll', async () => {
    stand.answer((_id, _req, res) => json(res, 500, {}))
    const { requestId, body } = okImage()
    await deliver(receiver.webhookUrl, body)
    expect(await changesOf(requestId, 1)).toEqual(['COMPLETED false'])
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    await receiver.deps.background.reconcileOne(requestId)
    expect(await changesOf(requestId, 2)).toEqual(['COMPLETED false', 'COMPLETED true'])
  })

  it('is written if the provider overrules a webhook, and not if it confirms one', async () => {
    const [overruled, confirmed] = [failed(), failed()]
    for (const { body } of [overruled, confirmed]) await deliver(receiver.webhookUrl, body)
    expect(await changesOf(confirmed.requestId, 1)).toEqual(['FAILED true'])
    expect(await changesOf(overruled.requestId, 1)).toEqual(['FAILED true'])
    stand.answer((id, _req, res) =>
      json(
        res,
        200,
        id === overruled.requestId
          ? imageResult(id)
          : {
              request_id: id,
              status: 'FAILED',
              model: 'vela',
              error: { code: 'x', message: 'y' },
              cost: 0,
              created_at: '2026-01-01T00:00:00.000Z',
              completed_at: '2026-01-01T00:00:01.000Z',
            },
      ),
    )
    for (const { requestId } of [overruled, confirmed]) await receiver.deps.background.reconcileOne(requestId)
    await settled()
    expect(await changesOf(overruled.requestId, 2)).toEqual(['FAILED true', 'COMPLETED true'])
    expect(await changesOf(confirmed.requestId, 1)).toEqual(['FAILED true'])
  })

  it('is written for a replay that lands, and not for a dry run', async () => {
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await changesOf(requestId, 1)
    const [delivery] = await database.sql`select id from mediadock.deliveries where request_id = ${requestId}`
    await database.sql`delete from mediadock.requests where request_id = ${requestId}`
    await replayDelivery(receiver.deps.landingDeps, delivery?.['id'], { dryRun: true })
    await settled()
    expect(await changesOf(requestId, 1)).toEqual(['FAILED true'])
    await replayDelivery(receiver.deps.landingDeps, delivery?.['id'], { dryRun: false })
    expect(await changesOf(requestId, 2)).toEqual(['FAILED true', 'FAILED true'])
  })

  it('is written if a service tracks a landed request with new data, and not with the same data', async () => {
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await changesOf(requestId, 1)
    const track = () => database.sql`
      insert into mediadock.requests (request_id, model, metadata) values (${requestId}, 'vela', '{"order_id": 42}') on conflict do nothing`
    await track()
    // Without another landing: the sequencer polls.
    expect(await changesOf(requestId, 2)).toEqual(['FAILED true', 'FAILED true'])
    await track()
    const other = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, model) values (${other}, 'vela')`
    await settled()
    expect(await changesOf(requestId, 2)).toHaveLength(2)
    expect(await changesOf(other, 0)).toEqual([])
  })

  it('is notified to listeners at once', async () => {
    const heads: string[] = []
    await database.sql.listen('mediadock_feed', (head) => heads.push(head))
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await changesOf(requestId, 1)
    const [row] = await database.sql`select position from mediadock.feed where request_id = ${requestId}`
    await eventually(() => heads.includes(row?.['position']))
  })
})

describe.each(testServers)('positions (%s)', (server) => {
  let database: TestDatabase
  let pool: Pool
  let sequencer: ReturnType<typeof createSequencer>
  beforeAll(async () => {
    database = await createTestDatabase(server)
    pool = createPool({ url: database.url, max: 2 })
  })
  beforeEach(async () => {
    await database.sql`truncate mediadock.changes, mediadock.feed_entries`
    sequencer = createSequencer({ db: pool.db, signal: never })
  })
  afterAll(async () => {
    await pool.close()
    await database.drop()
  })

  const positions = async () =>
    (await database.sql`select position from mediadock.feed order by position`).map((row) => Number(row['position']))

  it('of late commits are late, and delay no other', async () => {
    const late = await database.sql.reserve()
    await late`begin`
    const first = await addChange(late)
    const second = await addChange(database.sql)
    await sequencer.runOnce()
    await sequencer.runOnce()
    expect(await positions()).toHaveLength(1)
    await late`commit`
    late.release()
    await sequencer.runOnce()
    expect(
      (await database.sql`select request_id from mediadock.feed order by position`).map((row) => row['request_id']),
    ).toEqual([second, first])
  })

  it('are assigned in several rounds if necessary', async () => {
    const few = createSequencer({ db: pool.db, signal: never }, { maxStatements: 2 })
    const ids = []
    for (let n = 0; n < 5; n += 1) ids.push(await addChange(database.sql))
    const round = async () => ({ ...(await few.runOnce()), assigned: (await positions()).length })
    expect([await round(), await round(), await round()]).toEqual([
      { more: true, assigned: 2 },
      { more: true, assigned: 4 },
      { more: false, assigned: 5 },
    ])
    expect(
      (await database.sql`select request_id from mediadock.feed order by position`).map((row) => row['request_id']),
    ).toEqual(ids)
  })

  it('never go back, even if the clock does', async () => {
    const ahead = Date.now() * 1000 + 3_600_000_000
    await database.sql`insert into mediadock.feed_entries values (${ahead}, now(), gen_random_uuid(), 1, true)`
    await addChange(database.sql)
    await sequencer.runOnce()
    expect(await positions()).toEqual([ahead, ahead + 1])
  })

  it('that are no longer kept are refused instead of skipped', async () => {
    await addChange(database.sql)
    await sequencer.runOnce()
    const [old = 0] = await positions()
    const at = (days: number) => ({
      db: pool.db,
      retentionDays: 30,
      clock: () => new Date(Date.now() + days * 86_400_000),
      logger: createLogger('silent'),
    })
    expect(await pruneOnce(at(29), never)).toMatchObject({ changes: 0 })
    expect(await pruneOnce(at(31), never)).toMatchObject({ changes: 1 })
    const kept = (position: number) => database.sql`select mediadock.still_kept(${position})`
    await expect(kept(old - 1)).rejects.toMatchObject({
      code: 'MD002',
      message: expect.stringContaining(`goes back to ${old}`),
    })
    await kept(old)
    await kept(0)
    await expect(kept(-1)).rejects.toMatchObject({ code: '22023' })
    // The next position is above the pruned ones.
    await addChange(database.sql)
    await sequencer.runOnce()
    expect((await positions())[0]).toBeGreaterThan(old)
  })
})

describeOnPackaged('positions, on another server', () => {
  it('continue above the old ones after a restore, and after a crash', async () => {
    const [old, fresh] = [await withPackagedPostgres(), await withPackagedPostgres({ settings: { fsync: 'off' } })]
    const tool = (name: string, ...args: string[]) =>
      promisify(execFile)(path.join(inject('packagedBinaries'), name), args)
    const clientsOf = (url: string) => {
      const pool = createPool({ url, max: 1 })
      const sql = postgres(url, { max: 2, onnotice: () => {} })
      onTestFinished(async () => void (await Promise.all([pool.close(), sql.end({ timeout: 1 })])))
      return { sql, db: pool.db }
    }
    await migrate({ url: old.url, ...migrations })
    const before = clientsOf(old.url)
    // A pool that follows its database to another server does not know that it did.
    const deps = { db: before.db, signal: never }
    const sequencer = createSequencer(deps)
    // So that the ids of transactions are far apart.
    for (let n = 0; n < 500; n += 1) await before.sql`select pg_current_xact_id()`
    const first = await addChange(before.sql)
    await sequencer.runOnce()
    const second = await addChange(before.sql)
    const dump = path.join(old.dataDir, 'dump')
    await tool('pg_dump', '--format=custom', `--file=${dump}`, old.url)

    const heads = async (sql: postgres.Sql) => [
      ...(await sql<
        { request_id: string; position: string }[]
      >`select request_id, position from mediadock.feed order by position`),
    ]
    // The position that a reader had reached before the old server was lost; the dump is older.
    const lost = await addChange(before.sql)
    await sequencer.runOnce()
    const seen = Number((await heads(before.sql)).at(-1)?.position)

    await tool('pg_restore', `--dbname=${fresh.url}`, '--no-owner', dump)
    const after = clientsOf(fresh.url)
    deps.db = after.db
    const third = await addChange(after.sql)
    await sequencer.runOnce()
    const rows = await heads(after.sql)
    expect(rows.map(({ request_id }) => request_id)).toEqual([first, second, third])
    expect(Number(rows[1]?.position)).toBeGreaterThan(seen)

    // Its connections end with it, and so does what the ids of transactions meant.
    await old.stop('immediate')
    await old.start()
    deps.db = before.db
    const fourth = await addChange(before.sql)
    await eventually(async () => {
      await sequencer.runOnce()
      return (await heads(before.sql)).length === 4
    })
    expect((await heads(before.sql)).map(({ request_id }) => request_id)).toEqual([first, second, lost, fourth])
  })
})

/** As landing writes it. */
async function addChange(sql: postgres.Sql | postgres.ReservedSql): Promise<string> {
  const id = randomUUID()
  await sql`insert into mediadock.changes (changed_at, request_ids, statuses, media_complete) values (now(), array[${id}::uuid], array[2::smallint], array[true])`
  return id
}
