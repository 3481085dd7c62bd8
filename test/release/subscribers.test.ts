import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import type { FeedFilter } from '../../src/client/read-results.ts'
import { createPool } from '../../src/platform/postgres/postgres.ts'
import { addSubscription } from '../../src/receiver/subscriptions/acts.ts'
import { long, roundsOf } from '../chaos/length.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import { withSender, type Outgoing } from '../chaos/sender.ts'
import { startSubscriber } from '../receiver/subscriptions/support/subscriber.ts'
import { preferredServer, withTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { liveKey, sandboxKey } from '../support/receiver.ts'
import { failed, okAudio } from '../support/webhooks.ts'

// Short: each receiver is killed once.
const { kills, deliveries } = long
  ? { kills: roundsOf(20), deliveries: roundsOf(30_000) }
  : { kills: 2, deliveries: 1500 }
/**
 * A page of 100 changes then takes more than a second, eight at a time. So a kill comes in the middle of one, after a
 * position was stored.
 */
const answerMs = 100

type Sent = Outgoing & { sandbox: boolean; status: 'COMPLETED' | 'FAILED'; team: 'ads' | 'web' }

const subscriptions: { filter: FeedFilter; isTheirs: (sent: Sent) => boolean }[] = [
  { filter: { sandbox: true }, isTheirs: ({ sandbox }) => sandbox },
  {
    filter: { key_name: 'live', status: 'FAILED' },
    isTheirs: ({ sandbox, status }) => !sandbox && status === 'FAILED',
  },
  { filter: { metadata: { team: 'ads' } }, isTheirs: ({ team }) => team === 'ads' },
]

it(
  `three subscriptions get exactly their changes under load, with one of two receivers killed ${kills} times`,
  { timeout: long ? 1_800_000 : 180_000 },
  async () => {
    const database = await withTestDatabase(preferredServer)
    const subscribers = await subscribe(database)
    const settings = { GENERATION_KEYS: JSON.stringify([liveKey, sandboxKey]), DATABASE_POOL_SIZE: '6' }
    const receivers = await Promise.all([
      withReceiverProcess(database.url, settings),
      withReceiverProcess(database.url, settings),
    ])
    const all = makeSent(deliveries)
    await track(database, all)

    let accepted = 0
    const sending = Promise.all(
      receivers.map(({ url }, at) =>
        withSender(url, 8).sendUntilAccepted(
          all.filter((_, n) => n % receivers.length === at),
          () => (accepted += 1),
        ),
      ),
    )
    for (let kill = 0; kill < kills; kill += 1) {
      const share = (deliveries * (kill + 1)) / (kills + 1)
      await eventually(() => accepted >= share, 120_000)
      const victim = receivers[kill % receivers.length] ?? expect.fail()
      await victim.kill()
      expect(accepted, 'accepted when a receiver was killed').toBeLessThan(deliveries)
      await victim.start()
    }
    const tries = await sending
    expect(tries.reduce((sum, { broken }) => sum + broken, 0)).toBeGreaterThanOrEqual(kills)

    const expected = subscriptions.map(({ isTheirs }) => all.filter(isTheirs).map(({ requestId }) => requestId))
    await untilAllRead(database)
    subscribers.forEach(({ posted, ids }, n) => {
      expect([...requestsOf(posted)].toSorted()).toEqual(expected[n]?.toSorted())
      // A kill may repeat a post, under the same position.
      expect(new Set(ids()).size).toBe(expected[n]?.length)
    })
  },
)

const requestsOf = (posted: readonly { requestId: string }[]) => new Set(posted.map(({ requestId }) => requestId))

/** Every combination of environment, end and team, in turn. */
function makeSent(count: number): Sent[] {
  return Array.from({ length: count }, (_, n) => {
    const sandbox = n % 2 === 0
    const status = Math.floor(n / 2) % 2 === 0 ? 'COMPLETED' : 'FAILED'
    return {
      ...(status === 'COMPLETED' ? okAudio() : failed()),
      webhookId: `wh_${n}`,
      secret: sandbox ? sandboxKey.signing_secret : liveKey.signing_secret,
      sandbox,
      status,
      team: Math.floor(n / 4) % 3 === 0 ? 'ads' : 'web',
    }
  })
}

/** Tracks the requests as a service does that submits by itself. */
async function track({ sql }: TestDatabase, all: readonly Sent[]): Promise<void> {
  const rows = all.map(({ requestId, team, sandbox }) => ({
    id: requestId,
    key_name: sandbox ? sandboxKey.name : liveKey.name,
    metadata: { team },
  }))
  await sql`
    insert into mediadock.requests (request_id, key_name, metadata)
    select id, key_name, metadata from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
      as given (id uuid, key_name text, metadata jsonb)`
}

async function subscribe(database: TestDatabase) {
  const pool = createPool({ url: database.url, max: 1 })
  onTestFinished(() => pool.close())
  return Promise.all(
    subscriptions.map(async ({ filter }, n) => {
      const subscriber = await startSubscriber()
      subscriber.answer(() => delay(answerMs, 200))
      const wanted = { name: `s${n}`, url: subscriber.url, from: 'oldest' as const, filter }
      await addSubscription(pool.db, wanted, { production: false })
      return subscriber
    }),
  )
}

/** Until all have landed, and every subscription is past the newest change, so that nothing is still to be posted. */
async function untilAllRead({ sql }: TestDatabase): Promise<void> {
  await eventually(async () => {
    const [feed] = await sql`select count(*)::int as changes, max(position)::text as head from mediadock.feed_entries`
    const behind = await sql`select from mediadock.subscriptions where position < ${feed?.['head']}`
    return feed?.['changes'] === deliveries && behind.length === 0
  }, 120_000)
}
