import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createAcceptor } from '../../../src/receiver/intake/accept.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { createTestDatabase, type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { reportOf } from '../../support/report.ts'
import { aroundStatements } from '../../support/statements.ts'
import { failed } from '../../support/webhooks.ts'
import { noRoom, testHandOver, workOnce, type Round } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store, type TestWorker } from '../../support/worker.ts'

/* A reader's trigger or a missing grant refuses what is landed: whose fault it is, and who else suffers. */

describe.each(usualServers)("a landing that a service's trigger refuses (%s)", (server) => {
  let database: TestDatabase
  let role: string

  /** A service that lands as a role with no more than it needs. */
  beforeEach(async () => {
    database = await createTestDatabase(server)
    role = `lander_${randomUUID().slice(0, 8)}`
    await database.sql.unsafe(`
      create role ${role} login password 'x';
      grant usage on schema mediadock to ${role};
      grant select, insert, update, delete on all tables in schema mediadock to ${role};
      grant usage on all sequences in schema mediadock to ${role};`)
  })
  afterEach(async () => {
    await database.sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`)
    await database.drop()
  })

  const asRole = () => {
    const url = new URL(database.url)
    url.username = role
    url.password = 'x'
    return url.href
  }

  const trigger = (body: string) =>
    database.sql.unsafe(`
    create schema if not exists shop;
    create table if not exists shop.seen (request_id uuid);
    create or replace function public.take_result() returns trigger language plpgsql as $$ begin ${body} return null; end $$;
    create trigger take_result after insert or update of status, media_complete on mediadock.requests for each row when (new.landed_at is not null) execute function public.take_result();`)

  const states = async () =>
    new Map(
      (
        await database.sql`select request_id, parked_reason, i.delivery_id is not null as pending, i.failures,
      (select detail from mediadock.attempts a where a.delivery_id = d.id order by attempted_at desc limit 1) as detail
      from mediadock.deliveries d left join mediadock.inbox i on i.delivery_id = d.id`
      ).map(({ request_id, ...row }) => [String(request_id), row]),
    )

  /** Rounds as the loop makes them, each a minute and a half later than the one before. */
  const rounds = async (deps: TestWorker, count: number) => {
    const made: Round[] = []
    for (let round = 0; round < count; round += 1) {
      made.push(await workOnce(deps))
      deps.setNow(new Date(deps.clock().getTime() + 90_000))
    }
    return made
  }

  it("P0001 for one of many: the neighbours land at once, and it is parked after five tries with Postgres's message", async () => {
    const samples = Array.from({ length: 40 }, () => failed())
    const guilty = samples[17]!.requestId
    await trigger(
      `if new.request_id = '${guilty}' then raise exception 'shop has no order for %', new.request_id; end if;`,
    )
    const deps = createTestWorker({ databaseUrl: asRole() })
    await store(
      deps.db,
      samples.map(({ body }) => body),
    )
    deps.setNow(new Date(Date.now() + 1000))

    expect(await rounds(deps, 1)).toMatchObject([{ claimed: 40, landed: 39, failed: 1 }])
    const [landed] = await database.sql`select count(*)::int as n from mediadock.results where landed_at is not null`
    expect(landed?.['n']).toBe(39)
    expect((await states()).get(guilty)).toMatchObject({ pending: true, failures: 1, parked_reason: null })

    // Another process continues.
    const restarted = createTestWorker({ databaseUrl: asRole() })
    restarted.setNow(deps.clock())
    await rounds(restarted, 4)
    expect((await states()).get(guilty)).toMatchObject({
      pending: false,
      parked_reason: 'landing_failed',
      detail: `landing_failed: shop has no order for ${guilty} (P0001), function take_result()`,
    })
    expect(await rounds(restarted, 1)).toMatchObject([{ claimed: 0 }])
  })

  it('if parking and putting off are refused too, the neighbours land and its lease expires', async () => {
    const samples = Array.from({ length: 20 }, () => failed())
    const guilty = [samples[3]!.requestId, samples[11]!.requestId]
    await trigger(`if new.request_id = any('{${guilty.join()}}') then raise exception 'no'; end if;`)
    await database.sql.unsafe(`
      create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
      create trigger refuse before insert on mediadock.attempts for each row execute function public.refuse();`)
    const deps = createTestWorker({ databaseUrl: asRole() })
    await store(
      deps.db,
      samples.map(({ body }) => body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    expect(await rounds(deps, 2)).toMatchObject([
      { claimed: 20, landed: 18, failed: 2 },
      { claimed: 2, landed: 0, failed: 2 },
    ])
    expect((await states()).get(guilty[0]!)).toMatchObject({ pending: true, failures: 0, parked_reason: null })
  })

  it('a landing committed before another statement failed is reported once', async () => {
    const samples = Array.from({ length: 10 }, () => failed())
    const guilty = failed()
    await trigger(`if new.request_id = '${guilty.requestId}' then raise exception 'no'; end if;`)
    const outcomes: string[] = []
    const deps = createTestWorker({ databaseUrl: asRole(), onProcessed: ({ outcome }) => void outcomes.push(outcome) })
    // Delivered under two ids, it is not ordinary, and needs the general statement.
    await store(deps.db, [...samples.map(({ body }) => body), guilty.body, guilty.body])
    deps.setNow(new Date(Date.now() + 1000))
    expect(await rounds(deps, 1)).toMatchObject([{ claimed: 12, landed: 10, failed: 2 }])
    expect(outcomes).toEqual(samples.map(() => 'landed'))
  })

  it('is found by bisection: few statements for one of 500', async () => {
    const samples = Array.from({ length: 500 }, () => failed())
    await trigger(`if new.request_id = '${samples[333]!.requestId}' then raise exception 'no'; end if;`)
    let statements = 0
    const deps = createTestWorker({ databaseUrl: asRole() })
    const { db } = deps
    await store(
      db,
      samples.map(({ body }) => body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    const counting = aroundStatements(db, (run) => {
      statements += 1
      return run()
    })
    expect(await workOnce({ ...deps, db: counting })).toMatchObject({ claimed: 500, landed: 499, failed: 1 })
    expect(statements).toBeLessThan(45)
  })

  it('does not hold back the others of its batch, where the first eight of 500 are refused', async () => {
    const bodies = Array.from({ length: 500 }, () => failed())
    const refused = bodies.slice(0, 8).map(({ requestId }) => `'${requestId}'`)
    await trigger(`if new.request_id in (${refused.join(', ')}) then raise exception 'no'; end if;`)
    const deps = createTestWorker({ databaseUrl: asRole() })
    for (const part of [bodies.slice(0, 8), bodies.slice(8)])
      await store(
        deps.db,
        part.map(({ body }) => body),
      )
    deps.setNow(new Date(Date.now() + 1000))
    expect(await workOnce(deps)).toMatchObject({ claimed: 500, landed: 492, failed: 8 })
  })

  it('42501, no right to a schema: few statements a round, and in the end everything is parked', async () => {
    await trigger('insert into shop.seen values (new.request_id);')
    const deps = createTestWorker({ databaseUrl: asRole() })
    const samples = Array.from({ length: 12 }, () => failed())
    await store(
      deps.db,
      samples.map(({ body }) => body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    let statements = 0
    const db = aroundStatements(deps.db, (run) => {
      statements += 1
      return run()
    })
    const pending = async () => (await database.sql`select from mediadock.inbox`).length
    let made = 0
    for (; (await pending()) > 0 && made < 50; made += 1) {
      await workOnce({ ...deps, db }).catch(() => {})
      deps.setNow(new Date(deps.clock().getTime() + 90_000))
    }
    // A claim, a refusal of each part down to each row, and the failures of the rows.
    expect(statements).toBeLessThan(made * 60)
    for (const { requestId } of samples) {
      expect((await states()).get(requestId)).toMatchObject({
        parked_reason: 'landing_failed',
        detail: 'landing_failed: permission denied for schema shop (42501), function take_result()',
      })
    }
  })

  it('a failure that all of 500 share is not halved to the end, and counts only for those that were alone', async () => {
    await trigger('insert into shop.seen values (new.request_id);')
    const deps = createTestWorker({ databaseUrl: asRole() })
    await store(
      deps.db,
      Array.from({ length: 500 }, () => failed().body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    let statements = 0
    const db = aroundStatements(deps.db, (run) => {
      statements += 1
      return run()
    })
    await expect(workOnce({ ...deps, db })).rejects.toThrow()
    expect(statements).toBeLessThan(180)
    const [inbox] = await database.sql`select count(*) filter (where failures = 0 and due_at <= ${deps.clock()})::int
      as due, count(*)::int as n from mediadock.inbox`
    expect(inbox?.['n']).toBe(500)
    expect(inbox?.['due']).toBeGreaterThan(460)
  })

  it.each(['P0001', '42501'])(
    '%s from a trigger on deliveries: nothing is acknowledged, and the number of statements stays small',
    async (state) => {
      await database.sql.unsafe(`
      create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '${state}'; end $$;
      create trigger refuse before insert on mediadock.deliveries for each row execute function public.refuse();`)
      const { db, logger } = createTestWorker({ databaseUrl: database.url })
      const refused: unknown[] = []
      const noted = Object.assign(Object.create(logger), { error: (fields: unknown) => void refused.push(fields) })
      let statements = 0
      const counting = aroundStatements(db, (run) => {
        statements += 1
        return run()
      })
      const acceptor = createAcceptor({ db: counting, logger: noted, handOver: noRoom, onStored: () => {} })
      const accepted = await Promise.allSettled(
        Array.from({ length: 60 }, () => acceptor.accept(newDelivery(failed().body))),
      )
      expect(accepted.map(({ status }) => status)).toEqual(accepted.map(() => 'rejected'))
      expect(refused).toMatchObject([{ deliveries: 60 }])
      expect(statements).toBeLessThan(45)
    },
  )

  it('P0001 from a trigger on deliveries for one of a flush: it alone gets 503, and is logged', async () => {
    const samples = Array.from({ length: 60 }, () => failed())
    await database.sql.unsafe(`
      create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
      create trigger refuse before insert on mediadock.deliveries for each row
        when (new.request_id = '${samples[33]!.requestId}') execute function public.refuse();`)
    const { db, logger } = createTestWorker({ databaseUrl: database.url })
    const logged: unknown[] = []
    const noted = Object.assign(Object.create(logger), { error: (fields: unknown) => void logged.push(fields) })
    const acceptor = createAcceptor({ db, logger: noted, handOver: noRoom, onStored: () => {} })
    const accepted = await Promise.allSettled(samples.map(({ body }) => acceptor.accept(newDelivery(body))))
    expect(accepted.flatMap(({ status }, at) => (status === 'rejected' ? [at] : []))).toEqual([33])
    expect(accepted[33]).toMatchObject({ reason: { code: 'unavailable', reason: 'postgres_failed' } })
    expect(logged).toMatchObject([{ deliveries: 1, err: expect.any(Error) }])
    expect(await database.sql`select count(*)::int as n from mediadock.deliveries`).toEqual([{ n: 59 }])
  })

  it('P0001 from a trigger on the key of a known delivery: it alone gets 503, and its neighbours land', async () => {
    const known = failed()
    const deps = createTestWorker({ databaseUrl: database.url })
    const acceptor = createAcceptor({
      db: deps.db,
      logger: deps.logger,
      handOver: testHandOver(deps),
      onStored: () => {},
    })
    const signed = { ...newDelivery(known.body), keyName: 'sandbox', environment: 'sandbox' as const }
    expect(await acceptor.accept(signed)).toBe('accepted')
    await database.sql.unsafe(`
      create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
      create trigger refuse before update of key_name on mediadock.deliveries for each row execute function public.refuse();`)
    const samples = Array.from({ length: 9 }, () => failed())
    const answers = await Promise.allSettled([
      acceptor.accept({ ...signed, keyName: 'live', environment: 'live' }),
      ...samples.map(({ body }) => acceptor.accept(newDelivery(body))),
    ])
    expect(answers[0]).toMatchObject({ status: 'rejected', reason: { reason: 'postgres_failed' } })
    expect(answers.slice(1)).toEqual(samples.map(() => ({ status: 'fulfilled', value: 'accepted' })))
    // From memory: their claims have not ended.
    await eventually(async () => (await database.sql`select from mediadock.results`).length === 10)
    expect(await database.sql`select from mediadock.inbox`).toEqual([])
  })

  it('the reconciler waits for a briefly locked row, because the call for its result is already spent', async () => {
    const requestId = randomUUID()
    const trackedAt = new Date(Date.now() - 3600_000)
    await database.sql`insert into mediadock.requests ${database.sql({ request_id: requestId, key_name: 'live', tracked_at: trackedAt })}`
    const holder = await database.sql.reserve()
    const locked = Promise.withResolvers<void>()
    const deps = createTestWorker({
      databaseUrl: asRole(),
      fetchResult: async ({ keyName, onGranted }) => {
        onGranted?.()
        await holder`begin`
        await holder`select from mediadock.requests for update`
        locked.resolve()
        return { answer: { kind: 'result', report: reportOf(imageResult(requestId)) }, keyName }
      },
    })
    const run = reconciler.runOnce(deps)
    await locked.promise
    // Longer than one landing waits for a row.
    await delay(900)
    await holder`commit`
    holder.release()
    expect(await run).toMatchObject({ scanned: 1, landed: 1, failed: 0 })
  })

  it('the reconciler polls it again later, and continues with the others', async () => {
    const ids = Array.from({ length: 6 }, () => randomUUID())
    // One of them is known by its webhook already, and its media are missing.
    await database.sql`insert into mediadock.media (request_id, kind, position, url) values (${ids[3]!}, 'image', 0, 'https://media.test/first.png')`
    await database.sql`insert into mediadock.requests (request_id, key_name, status, source, landed_at, next_poll_at) values (${ids[3]!}, 'live', 'COMPLETED', 'webhook', now(), now() - interval '1 hour')`
    await trigger(`if new.request_id in ('${ids[2]}', '${ids[3]}') then raise exception 'not this one'; end if;`)
    await database.sql`insert into mediadock.requests ${database.sql(ids.filter((_id, at) => at !== 3).map((request_id, at) => ({ request_id, key_name: 'live', tracked_at: new Date(Date.now() - 3600_000 + at * 1000) })))}`
    const deps = createTestWorker({
      databaseUrl: asRole(),
      fetchResult: async ({ requestId, keyName, onGranted }) => {
        onGranted?.()
        return { answer: { kind: 'result', report: reportOf(imageResult(requestId)) }, keyName }
      },
    })
    expect(await reconciler.runOnce(deps)).toMatchObject({ scanned: 6, landed: 4, failed: 2 })
    for (const id of [ids[2]!, ids[3]!]) {
      const [row] =
        await database.sql`select next_poll_at > ${deps.clock().toISOString()}::timestamptz as later, poll_outcome, poll_detail from mediadock.requests where request_id = ${id}`
      expect(row).toEqual({
        later: true,
        poll_outcome: 'landing_failed',
        poll_detail: 'not this one (P0001), function take_result()',
      })
    }
  })
})
