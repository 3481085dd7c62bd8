import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { describe, it, onTestFinished } from 'vitest'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { startFaultyProxy } from '../platform/support/faulty-proxy.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { withTlsPostgres } from '../support/tls-postgres.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { makeDeliveries, withSender, type Answer, type Outgoing } from './sender.ts'
import { inTable } from './table.ts'

type Proxy = Awaited<ReturnType<typeof startFaultyProxy>>
type Scene = { proxy: Proxy; send: () => Promise<Answer>; isStored: () => Promise<boolean> }
type Round = { first: Answer; retry: Answer; isRight: boolean }

/** Deadlines take seconds, so rounds run side by side, each with a separate receiver. */
type Fault = {
  name: string
  rounds: number
  shortRounds: number
  abreast: number
  run: (scene: Scene) => Promise<Round>
}

const answeredWithinMs = limitMs(5000)
/** The server ends a statement after 5 s where deliveries are accepted, after 30 elsewhere. */
const noStatementOlderThan = '35 s'

const faults: Fault[] = [
  {
    name: 'commit reply lost',
    rounds: 100,
    shortRounds: 2,
    abreast: 4,
    run: async ({ proxy, send, isStored }) => {
      proxy.loseAnswers()
      const sending = send()
      await eventually(isStored, answeredWithinMs)
      proxy.resetAll()
      const first = await sending
      const retry = await again(send)
      return { first, retry, isRight: first.outcome === 'accepted' || retry.outcome === 'duplicate' }
    },
  },
  {
    name: 'half-open',
    rounds: 100,
    shortRounds: 0,
    abreast: 20,
    run: async ({ proxy, send }) => {
      proxy.loseAnswers()
      const first = await send()
      const retry = await again(send)
      return { first, retry, isRight: first.status === 503 && retry.outcome === 'duplicate' }
    },
  },
  {
    name: 'reset',
    rounds: 100,
    shortRounds: 4,
    abreast: 4,
    run: async ({ proxy, send, isStored }) => {
      const sending = send()
      await delay(Math.random() * 3)
      proxy.resetAll()
      const first = await sending
      // Asked before anything is sent again: who is answered 200 sends no more.
      const wasStored = await isStored()
      const retry = await again(send)
      return { first, retry, isRight: wasStored ? retry.outcome === 'duplicate' : first.status === 503 }
    },
  },
  {
    name: '200 ms latency',
    rounds: 100,
    shortRounds: 0,
    abreast: 4,
    run: async ({ proxy, send }) => {
      proxy.delayAnswers(200)
      const first = await send()
      const retry = await again(send)
      return { first, retry, isRight: first.outcome === 'accepted' && retry.outcome === 'duplicate' }
    },
  },
]

/** Sends until it is answered 200: the last answer, with the longest wait for any of them. */
async function again(send: () => Promise<Answer>): Promise<Answer> {
  let tookMs = 0
  for (let tries = 1; ; tries += 1) {
    const answer = await send()
    tookMs = Math.max(tookMs, answer.tookMs)
    if (answer.status === 200 || tries === 50) return { ...answer, tookMs }
    await delay(100)
  }
}

describeOnPackaged('the connection to Postgres', () => {
  // lost-connections.test.ts shows the effect of a lost connection on a statement.
  describe.each(long ? ['plain', 'inside TLS'] : ['inside TLS'])('%s', (kind) => {
    const tried = faults.filter(({ shortRounds }) => long || shortRounds > 0)
    it.each(tried)('$name', { timeout: 300_000 }, async ({ name, rounds: longRounds, shortRounds, abreast, run }) => {
      const rounds = long ? roundsOf(longRounds) : shortRounds
      const goal = 'answered within 5 s; the retry is `duplicate`; no statement that never ends'
      await inTable(`connection to Postgres, ${kind}: ${name}`, goal, async () => {
        const server = await withTlsPostgres({ encryptedOnly: kind !== 'plain' })
        await migrate({
          url: server.urlWith({ sslmode: 'require' }),
          schema: 'mediadock',
          folder: path.resolve(import.meta.dirname, '../../drizzle/receiver'),
        })
        const sql = postgres(server.url, { max: 4, ssl: 'prefer', onnotice: () => {} })
        onTestFinished(() => sql.end({ timeout: 1 }))
        await watchEffects(sql)
        const done: Round[] = []
        const deliveries: { delivery: Outgoing }[] = []
        const lane = async (count: number) => {
          const proxy = await startFaultyProxy(server.urlWith({ sslmode: kind === 'plain' ? 'disable' : 'require' }))
          const receiver = await startTestReceiver({ databaseUrl: proxy.url, settings: { databasePoolSize: 4 } })
          const sender = withSender(new URL(receiver.webhookUrl).origin, 4)
          const isStored = async ({ webhookId }: Outgoing) =>
            (await sql`select from mediadock.deliveries where webhook_id = ${webhookId}`).length > 0
          for (const delivery of makeDeliveries(count)) {
            // The connections are there, and what is run on them is prepared.
            for (const first of makeDeliveries(2)) await again(() => sender.send(first))
            done.push(await run({ proxy, send: () => sender.send(delivery), isStored: () => isStored(delivery) }))
            deliveries.push({ delivery })
            proxy.delayAnswers(0)
          }
          await receiver.stop()
        }
        const lanes = Math.min(abreast, rounds)
        await Promise.all(
          Array.from({ length: lanes }, (_, at) => lane(Math.floor(rounds / lanes) + (at < rounds % lanes ? 1 : 0))),
        )
        const endless = await sql`
          select from pg_stat_activity where application_name = 'mediadock' and state = 'active' and query_start < now() - ${noStatementOlderThan}::interval`
        const { stop } = await startTestReceiver({ databaseUrl: server.urlWith({ sslmode: 'require' }) })
        await untilInboxIsEmpty(sql)
        await stop()
        const books = await countBooks(sql, deliveries)
        const slowest = Math.max(...done.flatMap(({ first, retry }) => [first.tookMs, retry.tookMs]))
        const wrong = done.filter(({ isRight, retry }) => !isRight || retry.status !== 200)
        return {
          rounds: done.length,
          acknowledged: deliveries.length,
          ...books,
          silenceMs: undefined,
          measured: `slowest answer ${(slowest / 1000).toFixed(1)} s, ${done.filter(({ first }) => first.status === 503).length} × 503 first, ${wrong.length} wrong, ${endless.length} endless`,
          met:
            books.lost === 0 &&
            books.doubled === 0 &&
            wrong.length === 0 &&
            endless.length === 0 &&
            slowest <= answeredWithinMs,
        }
      })
    })
  })
})
