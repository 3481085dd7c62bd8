import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible, expectGoodLooks, openPage, shoot, type Look } from '../../browser/support/console.ts'
import { startDeliveries, type Deliveries } from '../../browser/support/deliveries.ts'
import { deliverAndSettle } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import { deliver, failed } from '../../support/webhooks.ts'

let browser: Browser
let database: Deliveries['database']
let receiver: Deliveries['receiver']
let known: Deliveries['known']

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await startDeliveries()
  ;({ database, receiver, known } = its)
  return its.stop
})

const open = (path: string, look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
const shownIds = (page: Awaited<ReturnType<typeof open>>) =>
  page.locator('[data-row]').evaluateAll((rows) => rows.map((row) => row.getAttribute('data-row')))

describe('the list of deliveries', () => {
  it('explains an empty list', async () => {
    const page = await open('deliveries?webhook_id=wh_forged')
    await page.getByText('No delivery matches these filters.').waitFor()
    await page.getByRole('link', { name: 'arrivals', exact: true }).click()
    await page.locator('[data-row]').getByText('No secret matches').waitFor()
  })

  it('pages through every row once while new rows arrive', async () => {
    const page = await open('deliveries?limit=2')
    const seen = await shownIds(page)
    await deliverAndSettle({ receiver, database }, failed(), { webhookId: `wh_new_${randomUUID()}` })
    await page.getByRole('link', { name: 'Older →' }).click()
    await page.waitForURL(/cursor=/)
    seen.push(...(await shownIds(page)))
    expect(seen).toHaveLength(4)
    expect(new Set(seen).size).toBe(4)
    await page.getByRole('link', { name: '← Newest' }).click()
    expect(await shownIds(page)).not.toEqual(seen.slice(0, 2))
  })
})

describe('replaying many', () => {
  it('counts the matching deliveries first, and replays all of them', async () => {
    const page = await open('deliveries?key_name=live')
    const [row] = await database.sql`select count(*)::int as n from mediadock.deliveries where key_name = 'live'`
    await page.getByRole('link', { name: 'Replay all that match…' }).click()
    await page.getByRole('heading', { name: `Replay ${row?.['n']} deliveries?` }).waitFor()
    await page.getByRole('button', { name: `Replay ${row?.['n']}` }).click()
    await page.getByText(`${row?.['n'] - 1} replayed, 1 parked again for the reasons below.`).waitFor()
    await page.getByText('not_json: not a notification').waitFor()
    expect(await page.locator('[hx-get]').count()).toBe(0)
  })

  it('shows how many still wait, until all have ended', async () => {
    const id = randomUUID()
    await database.sql`insert into mediadock.replays (id, started_at, actor, filters, count, requeued)
      values (${id}, now(), 'tester', '{"key_name":"live"}', 3, 2)`
    await database.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome, replay_id)
      values (${known.landed}, now(), 'landed', ${id})`
    await database.sql`insert into mediadock.inbox (delivery_id, due_at, replay_id)
      values (${known.failed}, now() + interval '1 hour', ${id})`
    const page = await open(`deliveries/replays/${id}`)
    await page.getByText('Replaying…').waitFor()
    expect(await page.getByRole('region', { name: 'Progress' }).innerText()).toMatch(/2 of 3\s+Still waiting\s+1/)
    await page.getByText(/^The others were waiting in the inbox already/).waitFor()
    await expectAccessible(page)
    await database.sql`delete from mediadock.inbox where replay_id = ${id}`
    await page.getByText('2 replayed, 1 changed something.').waitFor()
    await database.sql`delete from mediadock.attempts where replay_id = ${id}`
  })
})

describe('arrivals', () => {
  it('shows those that were refused, with the cause', async () => {
    const page = await open('deliveries?view=arrivals&outcome=refused')
    await expect
      .poll(() => page.locator('[data-row] td:nth-child(3)').allInnerTexts())
      .toEqual(['Signed too long ago', 'No secret matches'])
    await page.getByRole('link', { name: 'wh_forged', exact: true }).click()
    await page.waitForURL('**/deliveries?view=arrivals&webhook_id=wh_forged')
    await shoot(page, 'arrivals-refused')
  })

  it('opens the delivery of the marked arrival on Enter', async () => {
    const page = await open('deliveries?view=arrivals&webhook_id=wh_landed')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.waitForURL(`**/deliveries/${known.landed}`)
  })

  it('tails at once if the link says so, even with an empty table', async () => {
    const page = await open('deliveries?view=arrivals&tail=on&webhook_id=wh_first_of_all')
    await page.getByText('Tail is on').waitFor()
    await page.getByText('No arrival matches').waitFor()
    await deliver(receiver.webhookUrl, failed().body, { webhookId: 'wh_first_of_all' })
    await page.locator('tbody').getByText('wh_first_of_all').waitFor()
    expect(await page.getByText('No arrival matches').count()).toBe(0)
  })
})

describe('how it looks', () => {
  it('has no serious axe finding in either colour scheme, and fits a phone', async () => {
    for (const [name, path] of [
      ['deliveries', 'deliveries?since=2020-01-01'],
      ['arrivals', 'deliveries?view=arrivals'],
    ] as const) {
      const page = await open(path)
      await page.keyboard.press('j')
      await expectGoodLooks(page, name)
    }
  })
})
