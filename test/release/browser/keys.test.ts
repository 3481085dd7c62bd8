import { createHash } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { expectGoodLooks, expectNoOverflow, openPage, phone, shoot } from '../../browser/support/console.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
})
beforeEach(async () => {
  const its = await withReceiver({ stand: true, settings: { fetchRatePerMinute: 100 } })
  ;({ database, receiver, stand } = its)
  return its.stop
})

const at = (path: string) => new URL(path, receiver.internalUrl).href
const row = (page: Page, name: string) =>
  page.locator('.scroll[aria-label="Keys"] tbody tr', { has: page.getByRole('link', { name, exact: true }) })

async function matched(keyName: string): Promise<void> {
  await eventually(
    async () => (await database.sql`select from mediadock.key_uses where key_name = ${keyName}`).length > 0,
  )
}

describe('the keys', () => {
  it('shows each with its environment and fingerprint, never its secret', async () => {
    const page = await openPage(browser, at('/keys'))
    expect(await row(page, 'live').innerText()).toMatch(/live.*never.*0 of 100.*100/s)
    expect(await row(page, 'sandbox').locator('td:nth-child(2)').innerText()).toBe('sandbox')
    const fingerprint = createHash('sha256').update(liveKey.signing_secret).digest('hex').slice(0, 8)
    expect(await row(page, 'live').locator('td:nth-child(3)').innerText()).toBe(fingerprint)
    for (const secret of [liveKey.signing_secret, liveKey.api_key, sandboxKey.signing_secret, sandboxKey.api_key])
      expect(await page.content()).not.toContain(secret)
    expect(await page.getByRole('alert').count()).toBe(0)
  })

  it('shows the last match, and links to the deliveries that the key signed', async () => {
    await deliver(receiver.webhookUrl, okAudio().body)
    await matched('live')
    const page = await openPage(browser, at('/keys'))
    expect(await row(page, 'live').locator('td:nth-child(4) time').count()).toBe(1)
    expect(await row(page, 'live').locator('td:nth-child(5)').innerText()).toBe('1')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/deliveries\?key_name=live/)
  })

  it('warns of a retired or removed key that still matches', async () => {
    const nasty = '<b onclick=x>old</b>'
    await deliver(receiver.webhookUrl, okAudio().body)
    await deliver(receiver.webhookUrl, okAudio().body, { secret: sandboxKey.signing_secret })
    await matched('sandbox')
    receiver.setKeys(keysOf({ ...liveKey, retired: true }, { ...sandboxKey, name: nasty }))
    const page = await openPage(browser, at('/keys'))
    const alerts = await page.getByRole('alert').allInnerTexts()
    expect(alerts).toHaveLength(2)
    expect(alerts[0]).toMatch(
      /^live is retired and still used: the provider signed with it, last \d+\s\w+ ago.*Do not remove it yet/s,
    )
    expect(alerts[1]).toContain('sandbox is no longer configured')
    expect(await row(page, 'live').innerText()).toMatch(/retired\s+still used/)
    expect(await row(page, 'sandbox').innerText()).toContain('not configured')
    expect(await row(page, nasty).count()).toBe(1)
    expect(await page.locator('[onclick]').count()).toBe(0)
    await shoot(page, 'keys')
  })

  it('shows why a key makes no calls, and until when', async () => {
    stand.answer((_id, _req, res) =>
      json(res, 401, { error: { type: 'authentication_error', code: 'invalid_api_key', message: 'no' } }),
    )
    const { body, requestId } = okImage()
    await deliver(receiver.webhookUrl, body)
    await eventually(() => receiver.deps.background.reconcileOne(requestId))
    await eventually(
      async () =>
        (await database.sql`select from mediadock.call_budgets where blocked_reason = 'unauthorized'`).length > 0,
    )
    const page = await openPage(browser, at('/keys'))
    expect(await page.getByRole('alert').innerText()).toMatch(/^live makes no calls until .*refused this API key/s)
    expect(await row(page, 'live').innerText()).toMatch(/1 of 100.*99.*unauthorized/s)
  })

  it('shows the calls of a key and of its account', async () => {
    await database.sql`
      insert into mediadock.call_budgets
        (key_name, slots, slots_until, granted, account_id, account_limit)
      select name, array[calls], extract(epoch from now()), true, 'acme', 500
      from (values ('live', 3), ('of another receiver', 496)) as made (name, calls)
      on conflict (key_name) do update
      set slots = excluded.slots, slots_until = excluded.slots_until, account_id = 'acme', account_limit = 500`
    await database.sql`
      update mediadock.call_budgets
      set blocked_until = now() + interval '1 minute', blocked_reason = 'rate_limit_spent'`
    const page = await openPage(browser, at('/keys'))
    expect(await row(page, 'live').innerText()).toMatch(/3 of 100\s+499 of 500\s+1\s/)
    expect(await row(page, 'live').getByTitle('All keys of the account acme').count()).toBe(1)
    await expectNoOverflow(page)
    await shoot(page, 'keys-of-account')
    await page.setViewportSize(phone)
    await expectNoOverflow(page)
    expect(await row(page, 'sandbox').innerText()).not.toContain('—')
    await shoot(page, 'keys-of-account-phone')
  })

  it('links to the quarantine after a missing secret was added', async () => {
    await deliver(receiver.webhookUrl, okAudio().body, { secret: 'whsec_of_the_new_key' })
    await eventually(async () => (await database.sql`select from mediadock.quarantine`).length > 0)
    const page = await openPage(browser, at('/keys'))
    expect(await page.getByText('A secret was added').count()).toBe(0)
    receiver.setKeys(keysOf(liveKey, { name: 'new', signing_secret: 'whsec_of_the_new_key', retired: true }))
    await page.reload()
    await page
      .getByText('A secret was added: the newest refused arrival that no secret matched can now be accepted')
      .getByRole('link')
      .click()
    await page.getByRole('button', { name: 'Verify it' }).waitFor()
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    await deliver(receiver.webhookUrl, okAudio().body)
    await matched('live')
    receiver.setKeys(keysOf({ ...liveKey, retired: true }, sandboxKey))
    const page = await openPage(browser, at('/keys'))
    await expectGoodLooks(page, 'keys')
  })
})
