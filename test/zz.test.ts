import { it } from 'vitest'
import { environmentsOf } from '../src/receiver/domain/keys.ts'
import { storeDeliveries } from '../src/receiver/intake/store.ts'
import { land } from '../src/receiver/landing/land.ts'
import { landingOfWebhook } from '../src/receiver/landing/preparing.ts'
import { testServers, withTestDatabase } from './support/database.ts'
import { failed, okAudio } from './support/webhooks.ts'
import { createTestWorker, newDelivery } from './support/worker.ts'

it('explains', async () => {
  const pad = 'abcdef0123456789'.repeat(60)
  for (const server of testServers) {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url, max: 1 })
    const bodies = (n: number) =>
      Array.from({ length: n }, (_, i) =>
        i % 2
          ? Buffer.from(
              okAudio()
                .body.toString()
                .replace('.mp3', '.mp3?' + pad),
            )
          : Buffer.from(
              failed()
                .body.toString()
                .replace('"message":"', '"message":"' + pad),
            ),
      )
    for (const [size, rounds] of [
      [1, 30],
      [1, 60],
      [20, 60],
      [60, 40],
      [250, 12],
    ] as const) {
      let stored = 0,
        landed = 0
      for (let r = 0; r < rounds; r += 1) {
        const rows = bodies(size).map((b) => newDelivery(b))
        let t = performance.now()
        await storeDeliveries(deps.db, rows, { claimed: rows.map(({ id }) => ({ id, claimedUntil: new Date(Date.now() + 60000) })) })
        stored += performance.now() - t
        const ls = rows.map((d) =>
          landingOfWebhook(deps, { deliveryId: d.id, claims: 1, webhookId: d.webhookId, keyName: 'live' }, d.notification!),
        )
        t = performance.now()
        await land(deps.db, ls, { now: new Date(), environments: environmentsOf(deps.keys()) })
        landed += performance.now() - t
      }
      console.log('took', server, size, 'store', (stored / rounds).toFixed(2), 'land', (landed / rounds).toFixed(2))
    }
  }
}, 120000)
