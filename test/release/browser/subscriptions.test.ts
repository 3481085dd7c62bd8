import type { Browser } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { expectAccessible, expectNoOverflow, openPage, phone, shoot } from '../../browser/support/console.ts'
import { startSubscriber } from '../../receiver/subscriptions/support/subscriber.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { verify } from '../../support/verify.ts'
import { deliver, failed, nowSeconds } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

it('a service is subscribed, tested, paused, resumed and removed from the console', async () => {
  const subscriber = await startSubscriber()
  const page = await openPage(browser, new URL('/subscriptions', receiver.internalUrl).href)
  const row = page.locator('tr', { hasText: 'gallery' })
  await page.getByLabel('Name').fill('gallery')
  await page.getByLabel('URL').fill(subscriber.url)
  await page.getByRole('button', { name: 'Subscribe' }).click()
  const secret = await page.locator('#secret').innerText()
  await expectAccessible(page)
  expect(await row.innerText()).toMatch(/gallery.*active/s)

  await row.getByRole('button', { name: 'Send a test' }).click()
  await page.getByText('A test was posted to gallery').waitFor()
  const [sample] = subscriber.posted
  const signature = String(sample?.headers['x-service-signature'])
  expect(
    verify(Buffer.from(sample?.body ?? ''), signature, [{ name: 'it', signingSecret: secret }], nowSeconds()),
  ).toMatchObject({
    ok: true,
  })
  expect(await page.content()).not.toContain(secret)

  await row.getByRole('button', { name: 'Pause' }).click()
  await row.getByText('paused').waitFor()
  await deliver(receiver.webhookUrl, failed().body)
  await eventually(async () => {
    await page.reload()
    return (await row.locator('td').nth(2).innerText()).startsWith('1\n')
  })
  expect(subscriber.posted).toHaveLength(1)
  await expectAccessible(page)
  await shoot(page, 'subscriptions')
  await page.setViewportSize(phone)
  await expectNoOverflow(page)
  await shoot(page, 'subscriptions-phone')

  await row.getByRole('button', { name: 'Resume' }).click()
  await eventually(() => subscriber.posted.length === 2)
  await row.getByRole('link', { name: 'New secret…' }).click()
  await page.getByRole('button', { name: 'Make a new secret' }).click()
  expect(await page.locator('#secret').innerText()).not.toBe(secret)
  await row.getByRole('link', { name: 'Remove' }).click()
  await page.getByText(/Its backlog is \d changes?\./).waitFor()
  await expectAccessible(page)
  await page.getByRole('button', { name: 'Remove' }).click()
  await page.getByText('There are no subscriptions').waitFor()
  const actions = await database.sql`select action, via from mediadock.audit order by id`
  expect(actions.map(({ action, via }) => `${action} ${via}`)).toEqual(
    ['add', 'test', 'pause', 'resume', 'roll', 'remove'].map((act) => `subscription_${act} console`),
  )
})

it('a subscription whose next change was deleted can only be resumed at the oldest kept change', async () => {
  await database.sql`insert into mediadock.subscriptions (name, url, secret, state, position, stopped_at, stop_reason, last_error)
    values ('late', 'https://late.example.com/', 'whsec_x', 'stopped', 5, now(), 'position_expired', '<script>alert(1)</script>')`
  await database.sql`update mediadock.feed_bounds set pruned_to = 90`
  const page = await openPage(browser, new URL('/subscriptions', receiver.internalUrl).href)
  expect(await page.getByRole('button', { name: 'Resume', exact: true }).count()).toBe(0)
  await page.getByRole('button', { name: 'Resume with the oldest kept' }).click()
  await page.locator('tr', { hasText: 'late' }).getByText('active').waitFor()
  // Nothing comes after it but what was there.
  const [{ position } = {}] = await database.sql`select position::int from mediadock.subscriptions where claims > 0`
  expect(position).toBe(90)
})
