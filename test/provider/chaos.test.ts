import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { long } from '../chaos/length.ts'
import { withTestDatabase } from '../support/database.ts'
import { withProviderSites } from './support/provider-sites.ts'
import { quickPictures } from './support/quick-pictures.ts'
import { startWebhookCatcher } from './support/webhook-catcher.ts'

// Short: each of the two once, and a service of the test makes the pictures.
const { seconds, credits, clients, pauseMs } = long
  ? { seconds: 30, credits: 900.5, clients: 16, pauseMs: 25 }
  : { seconds: 2, credits: 16.5, clients: 4, pauseMs: 100 }

it(
  `kill -9 of one of two providers every second for ${seconds} s loses nothing and charges nothing twice`,
  { timeout: seconds * 1000 + 480_000 },
  async () => {
    const database = await withTestDatabase()
    const catcher = await startWebhookCatcher()
    onTestFinished(catcher.close)
    const urls = [database.url, database.url]
    // Every second picture waits, so that the kills hit running generations too.
    const killed = Promise.withResolvers<void>()
    let asked = 0
    const mayAnswer = () => (++asked % 2 === 0 ? killed.promise : undefined)
    const { sites, accepted, submitting, untilAllEnded, lookAtBooks } = await withProviderSites({
      database,
      urls,
      catcher,
      credits,
      ...(!long && { catalogFile: await quickPictures(mayAnswer) }),
    })
    const killing = new AbortController()
    const submitted = submitting({ clients, pauseMs, signal: killing.signal })
    for (let second = 0; second < seconds; second += 1) {
      const victim = sites[second % 2] ?? expect.fail()
      await victim.kill()
      await Promise.all([victim.boot(), delay(1000)])
    }
    killing.abort()
    killed.resolve()
    await submitted
    await untilAllEnded(400_000)
    expect(accepted.size).toBeGreaterThan(seconds)
    expect(await lookAtBooks()).toMatchObject({
      ledger: { ok: true, problems: [] },
      lost: 0,
      doubled: 0,
      ends: new Set(['COMPLETED']),
    })
  },
)
