import { Counter } from 'prom-client'
import { expect, it } from 'vitest'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { createUnsignedHints } from '../../../src/receiver/reconciling/unsigned-hints.ts'
import { withTestDatabase } from '../../support/database.ts'
import { createTestWorker } from '../../support/worker.ts'

it('counts the unsigned webhooks beyond 1,000 requests of a round', async () => {
  const { url } = await withTestDatabase()
  const { db, time, logger } = createTestWorker({ databaseUrl: url })
  const dropped = new Counter({ name: 'dropped', help: 'dropped', registers: [] })
  const count = async () => (await dropped.get()).values[0]?.value ?? 0
  const hints = createUnsignedHints({ db, time, logger, dropped })
  const note = (n: number) => hints.note({ sourceName: 'dreams', ...requestIdOf('dreams', `job-${n}`) })
  for (let n = 0; n < 1000; n += 1) note(n)
  note(0)
  expect(await count()).toBe(0)
  note(1000)
  expect(await count()).toBe(1)
  await hints.runOnce()
  note(1000)
  expect(await count()).toBe(1)
})

/** Two tracked requests of a source, each named by an unsigned webhook. */
async function withTwoHinted() {
  const { url, sql } = await withTestDatabase()
  const { db, time, logger } = createTestWorker({ databaseUrl: url })
  const dropped = new Counter({ name: 'dropped', help: 'dropped', registers: [] })
  const hints = createUnsignedHints({ db, time, logger, dropped })
  const named = ['job-1', 'job-2'].map((job) => ({ sourceName: 'dreams', ...requestIdOf('dreams', job) }))
  for (const { requestId, sourceName } of named) {
    await sql`insert into mediadock.requests (request_id, source_name) values (${requestId}, ${sourceName})`
    hints.note({ requestId, sourceName })
  }
  const count = async () => (await dropped.get()).values[0]?.value ?? 0
  const due = async () =>
    (await sql`select request_id from mediadock.requests where doubt_poll_at is not null order by 1`).map(
      (row) => row['request_id'],
    )
  return { sql, hints, ids: named.map(({ requestId }) => requestId), count, due }
}

it('makes the other polls due while a transaction locks a named request, and that one after its end', async () => {
  const { sql, hints, ids, due } = await withTwoHinted()
  await sql.begin(async (tx) => {
    await tx`select from mediadock.requests where request_id = ${ids[0]!} for update`
    await hints.runOnce()
    expect(await due()).toEqual([ids[1]])
  })
  await hints.runOnce()
  expect(await due()).toEqual(ids.toSorted())
})

it('keeps its hints while Postgres fails, and counts those that it refuses', async () => {
  const { sql, hints, ids, count, due } = await withTwoHinted()
  const fails = async (code: string) =>
    sql.unsafe(`create or replace function fail() returns trigger language plpgsql as
      $$ begin raise exception 'no' using errcode = '${code}'; end $$;
      create or replace trigger fail before update on mediadock.requests execute function fail()`)
  await fails('53100')
  await expect(hints.runOnce()).rejects.toThrow()
  await sql`drop trigger fail on mediadock.requests`
  await hints.runOnce()
  expect(await due()).toEqual(ids.toSorted())
  await fails('23514')
  for (const requestId of ids) hints.note({ sourceName: 'dreams', requestId })
  await hints.runOnce()
  expect(await count()).toBe(2)
})

it('polls a request that webhooks of two sources name by the same id', async () => {
  const { hints, ids, due } = await withTwoHinted()
  hints.note({ sourceName: 'nightmares', requestId: ids[0]! })
  await hints.runOnce()
  expect(await due()).toEqual(ids.toSorted())
})
