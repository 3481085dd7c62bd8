import { setTimeout as delay } from 'node:timers/promises'
import { Pool } from 'undici'
import { expect, it } from 'vitest'
import { countBooks, untilInboxIsEmpty, watchEffects } from '../chaos/books.ts'
import { limitMs, long, roundsOf } from '../chaos/length.ts'
import { balancerKinds, findBalancers, startBalancer } from '../chaos/real-balancers.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import type { Connecting } from '../chaos/sender.ts'
import { longestSilenceMs, startLoad } from '../chaos/steady-load.ts'
import { inTable } from '../chaos/table.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

const { rounds, perSecond } = long ? { rounds: roundsOf(5), perSecond: 200 } : { rounds: 1, perSecond: 50 }
/** Longer than HAProxy takes to see it: two checks, a second apart. */
const graceSeconds = 8
const settings = {
  DRAIN_SECONDS: '4',
  SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
  DATABASE_POOL_SIZE: '6',
  TRUST_PROXY: '127.0.0.1',
}
const senderAddress = '127.0.0.2'
/** A check that comes late on a busy machine costs a try now and then, and no delivery; without the drain it is one in twelve. */
const maxShareInVain = long ? 0.005 : 0.03

const installed = await findBalancers()
for (const kind of balancerKinds)
  if (!installed.some((one) => one.kind === kind))
    process.stderr.write(`${kind} is not installed on this machine: restarting behind it is skipped\n`)
const names = installed.map(({ kind }) => kind).join(' and ') || balancerKinds.join(' and ')

it.skipIf(installed.length === 0)(
  `restarting two receivers one after the other behind ${names} with the configuration of ops/, ${rounds} times, fails no delivery`,
  { timeout: 1_200_000 },
  async () => {
    await inTable(
      `rolling restart of two receivers behind ${names}, TLS, ${perSecond}/s each`,
      'no failed delivery, fewer than 0.5 % retried because a receiver had stopped; exit 0 within the grace',
      async () => {
        const { url, sql } = await withTestDatabase(preferredServer)
        await watchEffects(sql)
        const receivers = await Promise.all([1, 2].map(() => withReceiverProcess(url, settings)))
        const urls = receivers.map((receiver) => receiver.url)
        const balancers = await Promise.all(installed.map(({ kind, program }) => startBalancer(kind, program, urls)))
        const connecting = balancers.map(({ ca }) => ({ connect: { ca }, localAddress: senderAddress }))
        await Promise.all(balancers.map((balancer, at) => sendForged(balancer.url, connecting[at]!)))
        const loads = balancers.map((balancer, at) =>
          startLoad({ urls: [balancer.url], perSecond, again: false, connecting: connecting[at]! }),
        )
        await delay(500)
        const codes: (number | null)[] = []
        let slowest = 0
        for (let round = 1; round <= rounds; round += 1) {
          for (const [at, receiver] of receivers.entries()) {
            const { code, tookMs } = await receiver.stop()
            codes.push(code)
            slowest = Math.max(slowest, tookMs)
            await receiver.start()
            await eventually(() => balancers.every((balancer) => balancer.sendsTo(at)))
          }
        }
        const tallies = await Promise.all(loads.map((load) => load.end()))
        await untilInboxIsEmpty(sql)
        const acknowledged = tallies.flatMap((tally) => tally.acknowledged)
        const books = await countBooks(sql, acknowledged)
        const inVain = (await Promise.all(balancers.map((balancer) => balancer.inVain()))).reduce((sum, n) => sum + n)
        const failed = tallies.map(({ refused, broken }) => refused + broken)
        // The receiver trusts the balancer's header, and not the sender's. A broken connection has no address.
        expect(await sql`select distinct remote from mediadock.arrivals where remote is not null`).toEqual([
          { remote: senderAddress },
        ])
        const badEnds = codes.filter((code) => code !== 0)
        return {
          rounds,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `failed: ${installed.map(({ kind }, at) => `${kind} ${failed[at]}`).join(', ')}; retried because a receiver had stopped: ${inVain}; ${codes.length} stops, ${badEnds.length} of them with another exit code than 0, the slowest ${(slowest / 1000).toFixed(1)} s`,
          met:
            books.lost === 0 &&
            books.doubled === 0 &&
            failed.every((count) => count === 0) &&
            inVain < acknowledged.length * maxShareInVain &&
            badEnds.length === 0 &&
            slowest <= limitMs(graceSeconds * 1000),
        }
      },
    )
  },
)

/** One that claims another address than it comes from. */
async function sendForged(url: string, connecting: Connecting): Promise<void> {
  const pool = new Pool(url, connecting)
  const headers = { 'x-forwarded-for': '203.0.113.9', 'x-service-webhook-id': 'forged' }
  const answer = await pool.request({ method: 'POST', path: '/webhooks', headers, body: '{}' })
  expect(answer.statusCode).toBe(401)
  await answer.body.dump()
  await pool.close()
}
