import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { inject, it, onTestFinished } from 'vitest'
import { printedCommands } from '../ops/printed-commands.ts'
import { hasAutoFailover, untilWritable } from '../support/auto-failover.ts'
import { hasPgBouncer } from '../support/bouncer.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { liveKey } from '../support/receiver.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long } from './length.ts'
import { packageAt, present, standUp, type OperatorsStand } from './operators-stand.ts'
import { findBalancers, startBalancer } from './real-balancers.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable, notShown } from './table.ts'

const perSecond = 200
/** How long each step is left to itself, and how long HAProxy takes to ask one that is back. */
const stepMs = 5000
const backWithinMs = 2500
const againWithinMs = 10_000
/** The provider tries six times within a quarter of an hour. */
const pausesMs = [5000, 15_000, 30_000, 60_000, 120_000]
const senderAddress = '127.0.0.2'

/** The folder of an older version as an installed package, which is then upgraded from; otherwise that step is a restart. */
const older = process.env['CHAOS_OLDER']

const fault = `an operator’s week by the documents under ${perSecond}/s: new key, restart, ${older === undefined ? '' : 'upgrade, '}restore, failover; HAProxy, PgBouncer`
const goal = '0 lost; each delivery accepted in one of its six tries; receiving again ≤ 10 s after the promotion'

describeOnPackaged("an operator's week by the documents", () => {
  it.skipIf(!long)('loses no delivery', { timeout: 1_800_000 }, async (test) => {
    const haproxy = (await findBalancers()).find(({ kind }) => kind === 'haproxy')
    const needs = {
      pg_auto_failover: await hasAutoFailover(),
      PgBouncer: await hasPgBouncer(),
      HAProxy: haproxy !== undefined,
    }
    const [missing] = Object.entries(needs).flatMap(([name, isThere]) => (isThere ? [] : [name]))
    if (missing !== undefined || haproxy === undefined) {
      await notShown(fault, goal, `${missing} is not installed here`)
      return test.skip(`${missing} is not installed here`)
    }
    await inTable(fault, goal, async () => {
      const first = older === undefined ? present : packageAt(older)
      const stand = await standUp(first, [liveKey], { TRUST_PROXY: '127.0.0.1' })
      const { cluster, receivers, adminUrl } = stand
      const admin = postgres(adminUrl(), { max: 1, onnotice: () => {} })
      onTestFinished(() => admin.end({ timeout: 1 }))
      await watchEffects(admin)
      await admin`grant insert on effects_seen to mediadock_run`
      const balancer = await startBalancer(
        haproxy.kind,
        haproxy.program,
        receivers.map(({ url }) => url),
      )
      let secret = liveKey.signing_secret
      const load = startLoad({
        urls: [balancer.url],
        perSecond,
        atOnce: 30_000,
        connections: 256,
        pausesMs,
        secret: () => secret,
        connecting: { connect: { ca: balancer.ca }, localAddress: senderAddress },
      })
      await delay(stepMs)

      const next = { name: 'next', api_key: 'service_live_cccccccccccccccc', signing_secret: 'whsec_next_secret' }
      await stand.setKeys([liveKey, next])
      await eventually(async () => (await stand.mediadock(first, 'keys')).includes('next'))
      // Each receiver reads the file for itself.
      await delay(1000)
      secret = next.signing_secret
      await delay(stepMs)
      await stand.setKeys([{ ...liveKey, retired: true }, next])
      await delay(stepMs)

      await exchange(stand)
      await stand.migrate(present)
      await exchange(stand, present.main)
      await restore(adminUrl, load.tally.acknowledged.length)
      const tally = load.tally
      const failedBefore = tally.refused + tally.broken

      const whole = await cluster.untilWhole()
      const killedAt = Date.now()
      await Promise.all([whole.primary.kill(), stand.bouncerOf(whole.primary).kill()])
      const promotedAt = await untilWritable(adminUrl('postgres', whole.secondary))
      while (firstAfter(tally.acknowledged, promotedAt) === Infinity && Date.now() - promotedAt < 3 * againWithinMs)
        await delay(20)
      const againMs = firstAfter(tally.acknowledged, promotedAt) - promotedAt
      await Promise.all([whole.primary.start(), stand.bouncerOf(whole.primary).start()])
      await delay(stepMs)
      const promoted = postgres(adminUrl('media', whole.secondary), { max: 1, onnotice: () => {} })
      onTestFinished(() => promoted.end({ timeout: 1 }))
      // Or the lost one would wait for it.
      await promoted`checkpoint`
      await cluster.untilWhole()
      await delay(stepMs)

      const { acknowledged, givenUp, slowestMs } = await load.end()
      await untilInboxIsEmpty(promoted)
      const books = await countBooks(promoted, acknowledged)
      const seconds = (ms: number) => (ms / 1000).toFixed(1)
      return {
        rounds: 1,
        acknowledged: acknowledged.length,
        ...books,
        silenceMs: longestSilenceMs(acknowledged),
        measured: `promoted ${seconds(promotedAt - killedAt)} s after the kill, receiving again ${seconds(againMs)} s later; ${failedBefore} tries failed before that, ${tally.refused + tally.broken} in all, at most ${Math.max(...acknowledged.map(({ tries }) => tries))} of one delivery, ${givenUp} given up; slowest answer ${seconds(slowestMs)} s`,
        met: books.lost === 0 && books.doubled === 0 && givenUp === 0 && againMs <= againWithinMs,
      }
    })
  })
})

/** One receiver after the other, to another version or the same. */
async function exchange({ receivers }: OperatorsStand, program?: string): Promise<void> {
  for (const receiver of receivers) {
    const { code } = await receiver.stop()
    if (code !== 0) throw new Error(`a receiver ended with ${code}`)
    await receiver.start(program)
    await delay(backWithinMs)
  }
}

/** A backup and its restore beside everything, as printed: all is there that was acknowledged before, and belongs to whom it did. */
async function restore(adminUrl: OperatorsStand['adminUrl'], acknowledged: number): Promise<void> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-restored-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const PATH = `${inject('packagedBinaries')}:${process.env['PATH']}`
  const RESTORED_URL = adminUrl('media_restored')
  await promisify(execFile)('bash', ['-ec', (await printedCommands('postgres.md', 'Backup and restore')).join('\n')], {
    cwd: folder,
    env: { PATH, DATABASE_URL: adminUrl(), ADMIN_URL: adminUrl('postgres'), RESTORED_URL },
  })
  const restored = postgres(RESTORED_URL, { max: 1, onnotice: () => {} })
  try {
    const [row] = await restored<{ deliveries: number; owners: string[] }[]>`
      select (select count(*)::int from mediadock.deliveries) as deliveries,
        array(select distinct tableowner::text from pg_tables where schemaname = 'mediadock') as owners`
    if (row === undefined || row.deliveries < acknowledged || row.owners.join() !== 'mediadock_migrate')
      throw new Error(
        `of ${acknowledged} deliveries ${row?.deliveries} were restored, and belong to ${row?.owners.join(', ')}`,
      )
  } finally {
    await restored.end({ timeout: 1 })
  }
}
