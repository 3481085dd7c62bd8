import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { postgresTime, timeOf } from '../../../src/platform/postgres/time.ts'
import { identifyAll } from '../../../src/provider/accounts/identify.ts'
import { createKey, openProvider } from '../../../src/provider/operating/commands.ts'
import { runHousekeepingOnce } from '../../../src/provider/operating/housekeeping.ts'
import { usualServers, withTestDatabase } from '../../support/database.ts'
import { temporaryFolder } from '../engines/engine-run.ts'
import { moment } from '../support/time.ts'

it.each(usualServers)(
  'housekeeping removes at most 1,000 rows per statement, and only expired ones, on the %s server',
  async (server) => {
    const database = await withTestDatabase(server)
    const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32, 7) })
    const now = new Date('2026-01-02T00:00:00Z')
    const hoursAgo = (hours: number) => new Date(now.getTime() - hours * 3_600_000)
    try {
      const limits = { perKey: 120, perAccount: 600 }
      for (const [account, hours] of [
        ['idle', 2],
        ['busy', 0.5],
      ] as const) {
        const { api_key: key } = await createKey(deps, { account, name: 'k', environment: 'sandbox' })
        await identifyAll(deps.db, [key], limits, moment(hoursAgo(hours)))
      }
      // As many more as the idle account's own.
      await database.sql`insert into provider.rate_windows select 'key:' || i, w.at_ms, w.calls, w.used, w.granted
      from generate_series(1, 2300) i, provider.rate_windows w where w.id = 'account:idle'`
      await database.sql`insert into provider.idempotency_keys (account_id, environment, key, fingerprint, request_id, created_at)
      select 'idle', 'live', gen_random_uuid(), '', gen_random_uuid(), ${hoursAgo(25)}::timestamptz from generate_series(1, 1500)`
      await database.sql`insert into provider.idempotency_keys (account_id, environment, key, fingerprint, request_id, created_at)
      values ('idle', 'live', gen_random_uuid(), '', gen_random_uuid(), ${hoursAgo(23)})`
      const left = async () => {
        const [row] =
          await database.sql`select (select count(*)::int from provider.rate_windows) as windows, (select count(*)::int from provider.idempotency_keys) as keys`
        return row
      }
      const housekeeping = {
        db: deps.db,
        time: timeOf(() => now),
        hostClock: () => new Date(),
        mediaDir: await temporaryFolder(),
      }
      expect(await runHousekeepingOnce(housekeeping)).toEqual({ more: true })
      expect(await left()).toEqual({ windows: 1304, keys: 501 })
      expect(await runHousekeepingOnce(housekeeping)).toEqual({ more: true })
      expect(await runHousekeepingOnce(housekeeping)).toEqual({ more: false })
      expect(await left()).toEqual({ windows: 2, keys: 1 })
    } finally {
      await close()
    }
  },
)

it('removes references that a dead process left an hour ago, and none of a running generation', async () => {
  const database = await withTestDatabase()
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32, 7) })
  onTestFinished(close)
  const mediaDir = await temporaryFolder()
  const at = (name: string) => path.join(mediaDir, '.references', name)
  for (const name of ['left.1', 'running.2']) await fs.mkdir(at(name), { recursive: true })
  await fs.writeFile(path.join(at('left.1'), '0'), 'a picture')
  const now = Date.now()
  await fs.utimes(at('left.1'), now / 1000 - 3600, now / 1000 - 3600)
  await runHousekeepingOnce({ db: deps.db, time: postgresTime, hostClock: () => new Date(now), mediaDir })
  expect(await fs.readdir(path.join(mediaDir, '.references'))).toEqual(['running.2'])
})
