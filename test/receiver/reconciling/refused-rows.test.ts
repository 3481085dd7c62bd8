import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

describe.each(usualServers)('a request whose row Postgres refuses to write (%s)', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver
  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true })
    ;({ database, stand, receiver } = its)
    await database.sql.unsafe(`
      create table public.refused (request_id uuid, poll_outcome text, state text default 'P0001');
      create function public.refuse() returns trigger language plpgsql as $$
      declare found text := (select r.state from public.refused r where r.request_id = new.request_id
        and coalesce(r.poll_outcome = new.poll_outcome, r.poll_outcome is null));
      begin
        if found is not null then raise exception 'not this one' using errcode = found; end if;
        return new;
      end $$;
      create trigger refuse before update on mediadock.requests for each row execute function public.refuse()`)
    return its.stop
  })
  beforeEach(async () => void (await database.sql`delete from mediadock.requests`))

  const track = async (hoursAgo: number, nextPollAt: Date | null = null) => {
    const id = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at)
      values (${id}, 'live', now() - ${hoursAgo} * interval '1 hour', ${nextPollAt})`
    return id
  }
  const statusOf = async (id: string) =>
    (await database.sql`select status from mediadock.requests where request_id = ${id}`)[0]?.['status']

  it.each([
    ['was never polled', null],
    ['has a time for its next poll', new Date(Date.now() - 60_000)],
  ])(
    'and that %s is set aside: all others are polled, regardless of the number of refused ones',
    async (_, nextPollAt) => {
      stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
      const refused: string[] = []
      for (let n = 0; n < 40; n += 1) refused.push(await track(3, nextPollAt))
      const good = await track(2, nextPollAt)
      await database.sql`insert into public.refused (request_id) select id from unnest(${refused}::uuid[]) as r (id)`
      expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ landed: 1, scanned: 1 })
      expect(await statusOf(good)).toBe('COMPLETED')
      await database.sql`delete from public.refused`
      // By then the cause of the refusal may have been corrected.
      receiver.setNow(new Date(Date.now() + 301_000))
      expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ landed: 40 })
      receiver.setNow(undefined)
    },
  )

  it('and that waits for an extra poll is set aside: another request gets its extra poll', async () => {
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const [refused, good] = [randomUUID(), randomUUID()]
    await database.sql`
      insert into mediadock.requests (request_id, key_name, status, landed_at, source, doubt_poll_at)
      select id, 'live', 'FAILED', now(), 'webhook', now() - n * interval '1 minute' from unnest(${[good, refused]}::uuid[]) with ordinality as r (id, n)`
    await database.sql`insert into public.refused (request_id) values (${refused})`
    expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ landed: 1, scanned: 1 })
    expect(await statusOf(good)).toBe('COMPLETED')
  })

  it('because a trigger meets a lock is set aside too: another is polled', async () => {
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const [locked, good] = [await track(3), await track(2)]
    await database.sql`insert into public.refused (request_id, state) values (${locked}, '55P03')`
    expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ landed: 1, scanned: 1 })
    expect(await statusOf(good)).toBe('COMPLETED')
  })

  it.each([
    ['the due requests were claimed', new Date(Date.now() - 60_000), []],
    ['another overdue one was claimed alone', null, ['P0001']],
  ])(
    'and a failure of Postgres, after %s: those are polled and counted, not left claimed',
    async (_when, nextPollAt, others) => {
      stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
      const good = await track(5, nextPollAt)
      for (const [n, state] of [...others, '53100'].entries())
        await database.sql`insert into public.refused (request_id, state) values (${await track(4 - n)}, ${state})`
      await expect(receiver.deps.background.reconcileNow()).rejects.toThrow()
      expect(await statusOf(good)).toBe('COMPLETED')
      expect(
        await database.sql`select outcome, scanned, landed from mediadock.reconcile_runs order by id desc limit 1`,
      ).toEqual([{ outcome: 'error', scanned: 1, landed: 1 }])
    },
  )

  it('after its poll succeeded fails no run', async () => {
    const [refused, good] = [await track(3), await track(2)]
    await database.sql`insert into public.refused values (${refused}, 'not_found')`
    stand.answer((id, _req, res) => json(res, id === good ? 200 : 404, id === good ? imageResult(id) : {}))
    expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ scanned: 2, landed: 1, failed: 1 })
    expect(await statusOf(good)).toBe('COMPLETED')
  })
})
