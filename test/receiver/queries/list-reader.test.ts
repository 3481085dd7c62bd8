import { randomUUID } from 'node:crypto'
import path from 'node:path'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { createListReader } from '../../../src/receiver/queries/list-reader.ts'
import { watchedLogger } from '../../platform/support/watched-logger.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged } from '../../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { withStandby } from '../../support/standby.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { call } from '../api/calls.ts'

const folder = path.resolve(import.meta.dirname, '../../../drizzle/receiver')
const asOf = 'x-mediadock-as-of'

/** Each list of the API that may come from a standby. */
const lists = [
  '/api/deliveries',
  '/api/arrivals',
  '/api/requests',
  '/api/quarantine',
  '/api/audit',
  `/api/search?q=${randomUUID()}`,
]
const pages = ['/deliveries', '/deliveries?view=arrivals', '/requests', '/audit', `/search?q=${randomUUID()}`]

describeOnPackaged('lists with a standby', () => {
  it(
    'come from the standby with their time, and from the primary while the standby does not answer',
    { timeout: 120_000 },
    async () => {
      const { primary, standby } = await withStandby()
      await migrate({ url: primary.url, schema: 'mediadock', folder })
      const log = watchedLogger()
      const receiver = await startTestReceiver({
        databaseUrl: primary.url,
        settings: { databaseReadUrl: standby.url },
        logger: log.logger,
      })
      onTestFinished(receiver.stop)
      const [onPrimary, onStandby] = [primary, standby].map(({ url }) => postgres(url, { max: 1, onnotice: () => {} }))
      if (!onPrimary || !onStandby) throw new Error('two servers have two clients')
      onTestFinished(
        async () => void (await Promise.all([onPrimary.end({ timeout: 1 }), onStandby.end({ timeout: 1 })])),
      )
      const list = async () => {
        const { status, headers, json } = await call(receiver, 'GET /api/deliveries')
        return { status, asOf: headers.get(asOf), rows: json.data.length }
      }
      const page = async (at: string) => (await fetch(new URL(at, receiver.internalUrl))).text()

      await deliver(receiver.webhookUrl, failed().body)
      await eventually(async () => (await list()).rows === 1)
      for (const at of lists) {
        const { status, headers } = await call(receiver, `GET ${at}`)
        expect(status, at).toBe(200)
        expect(Date.now() - Date.parse(headers.get(asOf) ?? ''), at).toBeLessThan(120_000)
      }
      for (const at of pages) expect(await page(at), at).toContain('Read from the standby, whose last change is from')

      // Another database, on a server that is a standby: nothing of it is shown as ours.
      await onPrimary`create database another`
      const another = createPool({ url: Object.assign(new URL(standby.url), { pathname: '/another' }).href, max: 1 })
      const ours = createPool({ url: primary.url, max: 1 })
      onTestFinished(async () => void (await Promise.all([another.close(), ours.close()])))
      await eventually(async () => (await onStandby`select from pg_database where datname = 'another'`).length === 1)
      const reader = createListReader({ primary: ours.db, standby: another.db, logger: log.logger })
      const whose = await reader((db) => db.execute(sql`select current_database() as name`))
      expect({ asOf: whose.asOf, rows: whose.listed }).toMatchObject({
        asOf: undefined,
        rows: [{ name: new URL(primary.url).pathname.slice(1) }],
      })
      expect(log.lines().filter((line) => line.includes('it follows another database'))).toHaveLength(1)

      // Single items and actions come from the primary.
      await onStandby`select pg_wal_replay_pause()`
      const second = failed()
      await deliver(receiver.webhookUrl, second.body)
      await eventually(async () => (await call(receiver, `GET /api/results/${second.requestId}`)).status === 200)
      expect((await list()).rows).toBe(1)
      const [{ id }] = await onPrimary<
        [{ id: string }]
      >`select id from mediadock.deliveries where request_id = ${second.requestId}`
      expect((await call(receiver, `GET /api/deliveries/${id}`)).json).toMatchObject({ request_id: second.requestId })
      expect(await page(`/requests/${second.requestId}`)).toContain(second.requestId)
      expect((await call(receiver, `POST /api/deliveries/${id}/replay`)).status).toBe(200)
      await onStandby`select pg_wal_replay_resume()`
      await eventually(async () => (await list()).rows === 2)

      // Frozen: a second for the first who asks, and none for those after.
      await standby.freeze()
      const times: number[] = []
      for (let at = 0; at < 3; at += 1) {
        const started = performance.now()
        expect(await list()).toEqual({ status: 200, asOf: null, rows: 2 })
        times.push(performance.now() - started)
      }
      expect(await page('/deliveries')).not.toContain('data-as-of')
      standby.thaw()
      expect(times[0]).toBeGreaterThan(900)
      expect(times[2]).toBeLessThan(900)
      expect(
        log.lines().filter((line) => line.includes('does not serve them') && !line.includes('another database')),
      ).toHaveLength(1)
      await eventually(async () => (await list()).asOf !== null)
    },
  )

  it('come from the primary if the setting names no standby', async () => {
    const { url } = await withTestDatabase('packaged')
    const log = watchedLogger()
    const receiver = await startTestReceiver({
      databaseUrl: url,
      settings: { databaseReadUrl: url },
      logger: log.logger,
    })
    onTestFinished(receiver.stop)
    const { status, headers } = await call(receiver, 'GET /api/deliveries')
    expect({ status, asOf: headers.get(asOf) }).toEqual({ status: 200, asOf: null })
    expect(log.lines().join('')).toContain('it is not a standby')
  })
})
