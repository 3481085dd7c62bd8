import type { Page } from 'playwright-core'
import { expect, onTestFinished } from 'vitest'
import { call } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import { withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver, type TestReceiver, type TestReceiverOptions } from '../../support/receiver.ts'
import { deliver, type Delivery } from '../../support/webhooks.ts'
import { openPage, shoot } from './console.ts'
import { completed, startWorld, track, type World } from './request-world.ts'

// Things that go wrong at a receiver in ordinary traffic, each looked at
// as the on-call would: the first page names the cause once, and the page behind
// its one action says what to do.

export type Place = {
  database: TestDatabase
  world: World
  receiver: TestReceiver
  /** Posts the webhook of a tracked request that the provider would confirm. */
  land: (output?: object, delivery?: Delivery) => Promise<string>
  settled: () => Promise<unknown>
}

export type Drill = {
  name: string
  settings?: () => Promise<NonNullable<TestReceiverOptions['settings']>>
  goesWrong: (place: Place) => Promise<unknown>
  /** The alarms of the first page, worst first. */
  alarms: readonly string[]
  /** The text of the alarm. */
  says: RegExp
  /** The text of the page behind the alarm. */
  behind: RegExp
  /** The text of the page of the first request in that list. */
  first?: RegExp
}

export const internalToken = 'a token of the drills, 32 characters long'
export const rows = ({ database }: Place, table: string, count: number) =>
  eventually(async () => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length >= count)

/** Moves the results that landed so far, and their webhooks, 10 minutes back. */
export async function makeOlder(place: Place): Promise<void> {
  const { sql } = place.database
  await place.settled()
  const results = await sql`select from mediadock.requests`
  await rows(place, 'arrivals', results.length)
  const ten = sql`interval '10 minutes'`
  await sql`update mediadock.requests set landed_at = landed_at - ${ten}, tracked_at = tracked_at - ${ten},
    created_at = created_at - ${ten}, completed_at = completed_at - ${ten}`
  await sql`update mediadock.deliveries set received_at = received_at - ${ten}`
  await sql`update mediadock.arrivals set arrived_at = arrived_at - ${ten}`
  // The chart reads minutes of that age from the figures that a receiver wrote then.
  await sql`delete from mediadock.arrival_counts`
  await sql`delete from mediadock.minutes`
  await sql`insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds,
      landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
    select date_trunc('minute', now()) - ${ten}, now(), jsonb_build_object('accepted', ${results.length}::int), 3, 9, ${results.length},
      0.5, 1.2, 0, 0, 0`
}

export const submit = (receiver: TestReceiver) =>
  call(receiver, 'POST /api/generations', { body: { model: 'aurora-image', input: {}, metadata: { order: 42 } } })

export const picture = (world: World, n: number) => ({
  images: [{ url: world.media(`image-${n % 4}.webp`), width: 1024, height: 768 }],
})

export const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const causes = (page: Page) =>
  wrong(page)
    .locator('li')
    .evaluateAll((items) => items.map((item) => item.getAttribute('data-cause')))

export async function startPlace({ settings }: Pick<Drill, 'settings'>): Promise<Place> {
  const database = await withTestDatabase()
  const world = await startWorld()
  const receiver = await startTestReceiver({
    databaseUrl: database.url,
    providerUrl: world.url,
    settings: { webhookPublicUrl: 'https://hooks.example.com/webhooks', ...(await settings?.()) },
    followsUp: true,
  })
  onTestFinished(async () => {
    await receiver.stop()
    await world.close()
  })
  const settled = () => eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
  let landed = 0
  const land: Place['land'] = async (output, delivery) => {
    const id = await track(database, { ago: 12 })
    const whole = output ?? picture(world, (landed += 1))
    world.says(id, completed(id, whole))
    const body = { request_id: id, status: 'OK', payload: { model: 'aurora-image', output: whole, cost: 4 } }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(body)), delivery)
    return id
  }
  const place = { database, world, receiver, land, settled }
  for (let n = 0; n < 8; n += 1) await land()
  await rows(place, 'known_senders', 1)
  await settled()
  await eventually(
    async () => (await database.sql`select from mediadock.requests where not media_complete`).length === 0,
  )
  return place
}

export async function runDrill(drill: Drill): Promise<void> {
  const place = await startPlace(drill)
  const { receiver } = place
  await drill.goesWrong(place)
  const page = await openPage(await sharedBrowser(), receiver.internalUrl, { expectProblems: true })
  if (await page.getByLabel('Token').isVisible()) {
    await page.getByLabel('Token').fill(internalToken)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }
  receiver.deps.wake('issues')
  await expect.poll(() => causes(page)).toEqual(drill.alarms)
  await shoot(page, `drill-${drill.name}-1`)
  await expect.poll(async () => (await wrong(page).innerText()).replaceAll(/\s+/g, ' ')).toMatch(drill.says)
  await wrong(page).locator('li').first().getByRole('link').last().click()
  // A problem is on the first page at once, and an issue from the next round of the role on.
  const behind = async () => {
    const text = await page.locator('main').innerText()
    if (!drill.behind.test(text)) await page.reload()
    return text
  }
  await expect.poll(behind).toMatch(drill.behind)
  await shoot(page, `drill-${drill.name}-2`)
  if (drill.first === undefined) return
  await page.goto(new URL((await page.locator('tbody a').first().getAttribute('href')) ?? '', page.url()).href)
  expect(await page.locator('main').innerText()).toMatch(drill.first)
  await shoot(page, `drill-${drill.name}-3`)
}
