import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import Stripe from 'stripe'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { usualServers, withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { startSubscriber } from './support/subscriber.ts'

const secret = 'whsec_of_the_subscription'

/** A subscription to what comes from now on. */
async function subscribe(
  { sql }: TestDatabase,
  url: string,
  { position = 0, onlyComplete = false } = {},
): Promise<string> {
  const name = randomUUID()
  await sql`insert into mediadock.subscriptions (name, url, secret, only_complete, position)
    select ${name}, ${url}, ${secret}, ${onlyComplete}, greatest(${position}::bigint, coalesce(max(position), 1)) from mediadock.feed_entries`
  // Nothing of it is for the next test.
  onTestFinished(async () => void (await sql`delete from mediadock.subscriptions where name = ${name}`))
  return name
}

/** Changes of these requests in this order, as the sequencer writes them; answers their positions. */
async function change(
  { sql }: TestDatabase,
  requests: readonly string[],
  { status = 1, isComplete = true } = {},
): Promise<string[]> {
  const rows = await sql`
    insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
    select greatest((select coalesce(max(position), 0) from mediadock.feed_entries), (extract(epoch from now()) * 1000000)::bigint) + n, now(), id, ${status}::int, ${isComplete}
    from unnest(${[...requests]}::uuid[]) with ordinality as r (id, n) returning position`
  return rows.map((row) => String(row['position']))
}

const stateOf = async ({ sql }: TestDatabase, name: string) =>
  Object((await sql`select *, position::text, ahead::text[] from mediadock.subscriptions where name = ${name}`)[0])

describe.each(usualServers)('a subscription (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  let second: TestReceiver

  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true })
    ;({ database, receiver } = its)
    second = await startTestReceiver({ databaseUrl: database.url })
    return async () => {
      await second.stop()
      await its.stop()
    }
  })

  it('with complete: true gets one change per result, without incomplete ones', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url, { onlyComplete: true })
    const [first, second] = [randomUUID(), randomUUID()]
    await change(database, [first], { status: 1, isComplete: false })
    const [failure] = await change(database, [second], { status: 2, isComplete: false })
    const [whole] = await change(database, [first], { status: 1, isComplete: true })
    const [last] = await change(database, [randomUUID()], { status: 1, isComplete: false })
    await eventually(async () => (await stateOf(database, name)).position === last)
    expect(subscriber.posted.map(({ id }) => id)).toEqual([failure, whole])
  })

  it('gets each change as in the feed, signed, with its position as the id', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url)
    await deliver(receiver.webhookUrl, failed().body)
    const [post] = await eventually(() => subscriber.posted.length === 1 && subscriber.posted)
    const { data } = JSON.parse(
      await (await fetch(new URL(`api/feed?after=${Number(post?.id) - 1}`, receiver.internalUrl))).text(),
    )
    expect(JSON.parse(post?.body ?? '')).toEqual(data[0])
    expect(post?.id).toBe(String(data[0].position))
    expect(post?.headers['content-type']).toBe('application/json')
    const signature = String(post?.headers['x-service-signature'])
    // As docs/subscriptions.md says.
    expect(Stripe.webhooks.constructEvent(Buffer.from(post?.body ?? ''), signature, secret)).toEqual(data[0])
    expect(() => Stripe.webhooks.constructEvent(post?.body ?? '', signature, `${secret}x`)).toThrow(/signature/)
    expect(signature).toContain(`t=${post?.headers['x-service-timestamp']},`)
    await eventually(async () => (await stateOf(database, name)).position === post?.id)
  })

  it('gets the changes of one request in sequence and of several in parallel, from one replica at a time', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url)
    subscriber.answer(async () => {
      await delay(Math.random() * 20)
      return 200
    })
    const requests = Array.from({ length: 30 }, () => randomUUID())
    const positions = await change(database, [...requests.flatMap((one) => [one, one, one]), ...requests])
    await eventually(async () => (await stateOf(database, name)).position === positions.at(-1))
    expect(subscriber.ids().toSorted()).toEqual(positions)
    for (const request of requests) {
      const its = subscriber.posted.filter(({ requestId }) => requestId === request).map(({ id }) => id)
      expect(its).toEqual(its.toSorted())
    }
    expect(subscriber.most).toEqual({ all: 8, ofOne: 1 })
  })

  it('waits while its endpoint fails, then continues without a gap or repetition', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url)
    const [broken = '', ...others] = Array.from({ length: 40 }, () => randomUUID())
    // A redirect is no acceptance, and is not followed.
    subscriber.answer(async ({ requestId }) => {
      await delay(requestId === broken ? 50 : 20)
      return requestId === broken ? 302 : 200
    })
    const positions = await change(database, [others[0] ?? '', broken, ...others.slice(1), broken])
    const held = await eventually(async () => {
      const state = await stateOf(database, name)
      return state.failures >= 2 && state
    })
    expect(held).toMatchObject({ position: positions[0], state: 'active', last_error: 'the service answered 302' })
    expect(held.next_attempt_at - held.leased_until).toBeGreaterThanOrEqual(1000)
    expect(held.ahead.length).toBeGreaterThan(0)
    // Then the one that failed is tried alone: besides it came only what was under way at first.
    expect(subscriber.posted.filter(({ status }) => status === 302)).toHaveLength(held.failures)
    const first = subscriber.posted.findIndex(({ status }) => status === 302)
    expect(subscriber.posted.slice(first).filter(({ status }) => status === 200).length).toBeLessThanOrEqual(7)
    subscriber.answer(() => 200)
    await database.sql`update mediadock.subscriptions set next_attempt_at = now() where name = ${name}`
    const after = await eventually(async () => {
      const state = await stateOf(database, name)
      return state.position === positions.at(-1) && state
    })
    expect(after).toMatchObject({ failures: 0, failing_since: null, last_error: null, ahead: [] })
    const accepted = subscriber.posted.filter(({ status }) => status === 200).map(({ id }) => id)
    expect(accepted.toSorted()).toEqual(positions)
    expect(
      subscriber.posted.filter(({ requestId, status }) => requestId === broken && status === 200).map(({ id }) => id),
    ).toEqual([positions[1], positions.at(-1)])
  })

  it('stops in the middle when paused, and continues there without a gap or repetition', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url)
    subscriber.answer(() => delay(100, 200))
    const positions = await change(
      database,
      Array.from({ length: 250 }, () => randomUUID()),
    )
    await eventually(() => subscriber.posted.length > 10)
    await database.sql`update mediadock.subscriptions set state = 'paused' where name = ${name}`
    // It was given back: its lease is over.
    await eventually(
      async () =>
        (await database.sql`select from mediadock.subscriptions where name = ${name} and leased_until <= now()`)
          .length > 0,
    )
    const answered = subscriber.posted.length
    expect(answered).toBeLessThan(250)
    await delay(300)
    expect(subscriber.posted).toHaveLength(answered)
    subscriber.answer(() => 200)
    await database.sql`update mediadock.subscriptions set state = 'active' where name = ${name}`
    await eventually(async () => (await stateOf(database, name)).position === positions.at(-1))
    expect(subscriber.ids().toSorted()).toEqual(positions)
  })

  it('stops when it has failed for retry_hours', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url)
    subscriber.answer(() => 500)
    await database.sql`update mediadock.subscriptions set failures = 9, failing_since = now() - interval '24 hours' where name = ${name}`
    const before = await stateOf(database, name)
    await change(database, [randomUUID()])
    const stopped = await eventually(async () => {
      const state = await stateOf(database, name)
      return state.state === 'stopped' && state
    })
    expect(stopped).toMatchObject({
      stop_reason: 'retries_spent',
      position: before.position,
      last_error: 'the service answered 500',
    })
    const told = await (await fetch(new URL('api/problems', receiver.internalUrl))).text()
    expect(JSON.parse(told).data).toContainEqual(
      expect.objectContaining({ cause: `subscription_stopped:${name}`, severity: 'critical' }),
    )
    const metrics = await (await fetch(new URL('metrics', receiver.internalUrl))).text()
    expect(metrics).toContain(`mediadock_subscription_backlog{name="${name}"} 1\n`)
    const count = subscriber.posted.length
    await database.sql`update mediadock.subscriptions set next_attempt_at = now() where name = ${name}`
    await change(database, [randomUUID()])
    await delay(1500)
    expect(subscriber.posted).toHaveLength(count)
  })

  it('stops if its next change was deleted, and skips nothing', async () => {
    const subscriber = await startSubscriber()
    const name = await subscribe(database, subscriber.url, { position: 1 })
    await database.sql`update mediadock.subscriptions set state = 'paused' where name = ${name}`
    const [gone, kept] = await change(database, [randomUUID(), randomUUID()])
    await database.sql.begin(async (sql) => {
      await sql`delete from mediadock.feed_entries where position <= ${gone ?? ''}`
      await sql`update mediadock.feed_bounds set pruned_to = ${gone ?? ''}`
    })
    await database.sql`update mediadock.subscriptions set state = 'active' where name = ${name}`
    const stopped = await eventually(async () => {
      const state = await stateOf(database, name)
      return state.state === 'stopped' && state
    })
    expect(stopped.stop_reason).toBe('position_expired')
    expect(stopped.last_error).toContain('were deleted before')
    expect(Number(stopped.position)).toBeLessThan(Number(gone))
    expect(subscriber.posted).toEqual([])
    expect(Number(kept)).toBeGreaterThan(Number(gone))
  })
})

it('loses no change when a process is killed, and repeats posts with their ids and order', async () => {
  const database = await withTestDatabase()
  const subscriber = await startSubscriber()
  const name = await subscribe(database, subscriber.url)
  subscriber.answer(async () => {
    await delay(10)
    return 200
  })
  const requests = Array.from({ length: 20 }, () => randomUUID())
  const positions = await change(
    database,
    Array.from({ length: 300 }, (_, at) => requests[at % 20] ?? ''),
  )
  const begin = () => {
    const file = path.resolve(import.meta.dirname, 'support/process.ts')
    const child = spawn(process.execPath, [file, database.url, '3000'], { stdio: ['ignore', 'ignore', 'inherit'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    return child
  }
  const first = begin()
  await eventually(() => subscriber.posted.length > 75)
  first.kill('SIGKILL')
  await once(first, 'exit')
  await eventually(() => subscriber.isQuiet())
  const killed = await stateOf(database, name)
  const answered = subscriber.posted.length
  expect(Number(killed.position)).toBeLessThan(Number(positions.at(-1)))
  begin()
  await eventually(async () => (await stateOf(database, name)).position === positions.at(-1))
  expect([...new Set(subscriber.ids())].toSorted()).toEqual(positions)
  expect(subscriber.posted.length).toBeGreaterThanOrEqual(300)
  // Not from the beginning.
  expect(subscriber.posted.slice(answered).every(({ id }) => Number(id) > Number(killed.position))).toBe(true)
  for (const request of requests) {
    const later = subscriber.posted.slice(answered).filter(({ requestId }) => requestId === request)
    const ids = later.map(({ id }) => id)
    expect(ids).toEqual(ids.toSorted())
  }
})
