import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterEach, expect, it, onTestFinished } from 'vitest'
import { call } from '../receiver/api/calls.ts'
import { startSubscriber } from '../receiver/subscriptions/support/subscriber.ts'
import { sharedBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/provider-stand.ts'
import { openPage, shoot } from './support/console.ts'
import { makeOlder, picture, runDrill, startPlace, submit, wrong, type Drill } from './support/drill.ts'
import { takeAllBack, wideViewport } from './support/lent-pages.ts'
import { completed, track } from './support/request-world.ts'

afterEach(async () => takeAllBack(await sharedBrowser()))

/** Of the services that the receiver calls. */
const drills: Drill[] = [
  {
    name: 'provider-unreachable',
    // Its own runs are far away: only those of the drill are seen.
    settings: async () => ({ reconcileCron: '0 * * * *' }),
    goesWrong: async ({ world, database, receiver }) => {
      world.answer((_id, req) => void req.socket.destroy())
      for (let n = 0; n < 5; n += 1) await track(database, { ago: 400 })
      await submit(receiver)
      await receiver.deps.background.reconcileNow()
      await receiver.deps.background.reconcileNow()
    },
    alarms: ['provider_unreachable'],
    says: /The provider has given no usable answer since [^.]* \(the connection was closed without an answer\)\. .* GENERATION_API_URL \(http.* Nothing is lost: results wait at the provider, and 1 submit waits here\./,
    behind:
      /the next run of this replica\s+5\s+overdue requests\s+0\s+polls due now\s+1\s+submit waits for an answer, the oldest for \d+\s(?:ms|s), last error: the connection was closed without an answer\s+0\s+incomplete results\s/,
  },
  {
    name: 'media-404',
    settings: async () => ({ mediaArchive: { kind: 'file', root: await folder() } }),
    goesWrong: async (place) => {
      const { world, land } = place
      await land({ images: [{ url: `${world.url}/gone-1.png`, width: 4, height: 3 }] })
      await land({ video: { url: `${world.url}/gone-2.webm`, width: 4, height: 3, duration: 1 } })
      await eventually(async () => {
        await place.database
          .sql`update mediadock.media_copies set due_at = now() where state = 'waiting' and fault = 'gone'`
        return (await place.database.sql`select from mediadock.media_copies where state = 'failed'`).length >= 2
      })
    },
    alarms: ['media_gone'],
    says: /no longer serves 2 media .*: .*404\. .*No copy exists/,
    behind: /(COMPLETED[\s\S]*1 of 1, 1 gone[\s\S]*){2}/,
    first: /1 of 1, 1 gone[\s\S]*no copy exists: .*404/,
  },
  {
    name: 'credits-spent',
    goesWrong: async ({ world, receiver }) => {
      world.answer((_id, _req, res) =>
        json(res, 402, { error: { type: 'billing_error', code: 'insufficient_credits', message: 'no credits left' } }),
      )
      for (let n = 0; n < 3; n += 1) await submit(receiver)
    },
    alarms: ['credits_spent:live'],
    says: /The account of the key live has too few credits: 3 submits were refused in the last hour .*Polling and landing continue\. This alarm ends an hour after the last refusal\./,
    behind: /Refused submits([\s\S]*402 insufficient_credits\s+no credits left[\s\S]*"order": 42){3}/,
  },
  {
    name: 'submits-refused',
    goesWrong: async ({ world, receiver }) => {
      const error = { type: 'invalid_request_error', code: 'invalid_input', message: 'no such style' }
      world.answer((_id, _req, res) => json(res, 422, { error }))
      for (let n = 0; n < 2; n += 1) await submit(receiver)
    },
    alarms: ['submits_refused'],
    says: /The provider refused 2 submits in the last hour, .*: 422 invalid_input 2× with the key live\./,
    behind: /Refused submits([\s\S]*422 invalid_input\s+no such style[\s\S]*"order": 42){2}/,
  },
  {
    name: 'quota-spent',
    settings: async () => ({ fetchRatePerMinute: 12 }),
    goesWrong: async ({ world, database, receiver }) => {
      for (let n = 0; n < 9; n += 1) {
        const id = await track(database, { ago: 400 })
        world.says(id, completed(id, picture(world, n)))
      }
      await receiver.deps.background.reconcileNow()
    },
    alarms: ['overdue'],
    says: /overdue: .* the calls that polls may use in this minute are used up\. .* Nothing is lost\. If the number grows, raise FETCH_RATE_PER_MINUTE \(now 12\)/,
    behind: /poll postponed\s+the calls that such polls may use in this minute are used up/,
  },
  {
    name: 'archive-full',
    settings: async () => ({ mediaArchive: { kind: 'file', root: await fullFolder() } }),
    goesWrong: async (place) => {
      const { world, land } = place
      for (let n = 0; n < 3; n += 1) await land(picture(world, n))
      await eventually(async () => {
        const copies = await place.database.sql`select from mediadock.media_copies where state = 'waiting'`
        const failed = await place.database.sql`select from mediadock.media_copies where fault = 'store'`
        return copies.length === 11 && failed.length >= 1
      })
    },
    alarms: ['archive_store'],
    says: /The archive cannot be written, and 11 media wait for a copy\. The error: .*\. It is unknown when their links end.*; copying then continues\./,
    behind: /(COMPLETED[\s\S]*){11}/,
  },
  {
    name: 'subscriber-500',
    goesWrong: async (place) => {
      const subscriber = await startSubscriber()
      subscriber.answer(() => 500)
      await call(place.receiver, 'POST /api/subscriptions', { body: { name: 'shop', url: subscriber.url } })
      for (let n = 0; n < 3; n += 1) await place.land()
      await makeOlder(place)
      await eventually(async () => subscriber.posted.length >= 2)
      await place.database
        .sql`update mediadock.subscriptions set failing_since = now() - interval '10 minutes', failures = 8`
      await place.database.sql`update mediadock.feed_entries set changed_at = changed_at - interval '10 minutes'`
    },
    alarms: ['subscription_failing:shop'],
    says: /the subscription “shop” since .*500.* \d+ changes wait, and posts are retried\. Check the service\. After 24 h .* its changes wait until an operator resumes it, for at most 30 days \(RETENTION_DAYS\)\./,
    behind: /oldest 10\smin[\s\S]*\d failures?, the first 10\smin ago, .* Stops at/,
  },
]

async function folder(): Promise<string> {
  const root = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-drill-'))
  onTestFinished(() => fs.rm(root, { recursive: true, force: true }))
  return root
}

const run = promisify(execFile)

/** A full disk. Mounting one takes a privileged user; without one, a file stands where the folder should be. */
async function fullFolder(): Promise<string> {
  const root = await folder()
  try {
    await run('mount', ['-t', 'tmpfs', '-o', 'size=4k', 'tmpfs', root])
  } catch {
    const file = path.join(root, 'archive')
    await fs.writeFile(file, '')
    return file
  }
  onTestFinished(async () => void (await run('umount', [root])))
  return root
}

it('takes two screens at most while all is well', async () => {
  const { receiver } = await startPlace({})
  const page = await openPage(await sharedBrowser(), receiver.internalUrl, { expectProblems: true })
  await wrong(page).getByText('Nothing is wrong').waitFor()
  await page.locator('.result').nth(5).waitFor()
  expect(await page.locator('tr').count()).toBeGreaterThan(5)
  await shoot(page, 'now-all-is-well')
  const [results, link] = await Promise.all([
    page.locator('.results').boundingBox(),
    page.getByRole('link', { name: 'All requests' }).boundingBox(),
  ])
  expect((link?.y ?? 0) - (results?.y ?? 0) - (results?.height ?? 0)).toBeGreaterThanOrEqual(8)
  expect(await page.evaluate('document.documentElement.scrollHeight')).toBeLessThanOrEqual(2 * wideViewport.height)
})

it('shows an archived picture that has no thumbnail itself', async () => {
  const { database, receiver } = await startPlace({
    settings: async () => ({ mediaArchive: { kind: 'file', root: await folder() } }),
  })
  await eventually(async () => (await database.sql`select from mediadock.media where sha256 is not null`).length >= 8)
  await database.sql`update mediadock.archived_files set has_thumbnail = false`
  const page = await openPage(await sharedBrowser(), receiver.internalUrl, { expectProblems: true })

  await page.getByRole('heading', { name: 'Latest results' }).scrollIntoViewIfNeeded()
  const loaded = `[...document.querySelectorAll('.results img')].filter((one) => one.naturalWidth > 0).length`
  await expect.poll(() => page.evaluate(loaded)).toBe(6)
})

it.for(drills)('$name', runDrill)
