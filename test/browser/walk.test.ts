import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { long } from '../chaos/length.ts'
import { sharedBrowser } from '../support/browser.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { expectAccessible, expectNoOverflow, openPage, phone } from './support/console.ts'
import { wideViewport } from './support/lent-pages.ts'
import { expectNoDeadLinks } from './support/links.ts'
import { startScene, type Scene } from './support/scene.ts'

let browser: Browser
let database: TestDatabase
let scene: Scene

beforeAll(async () => {
  browser = await sharedBrowser()
  database = await createTestDatabase()
  // Half of an hour's rows show the same.
  const minutes = long ? 46 : 23
  scene = await startScene({ url: database.url, sql: database.sql, hostile: true, minutes })
})
afterAll(async () => {
  await scene.stop()
  await database.drop()
})

const at = (path: string) => new URL(path, scene.receiver.internalUrl).href

const alive =
  '[src^="javascript:"], [href^="javascript:"], [src^="data:"], [href^="data:"], img[src="x"], main script, [onerror]'

/** Nothing that others sent has become markup, script or a link that runs. */
async function expectInert(page: Page): Promise<void> {
  const [title, count] = await page.evaluate<[string, number]>(
    `[document.title, document.querySelectorAll(${JSON.stringify(alive)}).length]`,
  )
  expect(title).toMatch(/ · mediadock$/)
  expect(title).not.toContain('owned')
  expect(count).toBe(0)
}

describe('a walk through the console', () => {
  it('reaches every page from the navigation, and its help with ?', async () => {
    const page = await openPage(browser, at('/'))
    const links = page.getByRole('navigation', { name: 'Pages' }).getByRole('link')
    const labels = await links.allInnerTexts()
    expect(labels).toEqual([
      'Now',
      'Issues',
      'Deliveries',
      'Requests',
      'Parked & quarantine',
      'Reconciler',
      'Keys',
      'Subscriptions',
      'Audit',
    ])
    for (const label of labels) {
      await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: label, exact: true }).click()
      await page.getByRole('heading', { level: 1, name: label }).waitFor()
      expect(await page.locator('nav [aria-current=page]').first().innerText()).toBe(label)
      await page.keyboard.press('?')
      await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
      if (long || label === 'Now') await expectAccessible(page, 'all', long ? 'html' : 'dialog[open]')
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'hidden' })
    }
  })

  it('shows each page completely, wide and light, then on a phone and dark, with hostile payloads escaped', async () => {
    const page = await openPage(browser, at('/'))
    const dialogs: string[] = []
    page.on('dialog', (dialog) => {
      dialogs.push(dialog.message())
      void dialog.dismiss()
    })
    for (const [index, [name, path]] of scene.pages.entries()) {
      // Its elements are the same on both: but for colours and sizes, axe finds on either what it finds. Long: on all.
      const [wide, narrow] = long
        ? (['all', 'all'] as const)
        : index % 2 === 0
          ? (['all', 'colours'] as const)
          : (['colours', 'all'] as const)
      await page.setViewportSize(wideViewport)
      await page.emulateMedia({ colorScheme: 'light' })
      await page.goto(at(path))
      // A marked row has colours of its own.
      await page.keyboard.press('j')
      await expect(look(page, wide), `${name}, wide`).resolves.toBeUndefined()
      await page.emulateMedia({ colorScheme: 'dark' })
      if (long) await expect(look(page, 'all'), `${name}, dark, wide`).resolves.toBeUndefined()
      await page.setViewportSize(phone)
      await expect(look(page, narrow), `${name}, dark, on a phone`).resolves.toBeUndefined()
      if (long) {
        await page.emulateMedia({ colorScheme: 'light' })
        await expect(look(page, 'all'), `${name}, light, on a phone`).resolves.toBeUndefined()
      }
      expect(dialogs).toEqual([])
    }
  }, 180_000)

  it('has no dead link', async () => {
    await expectNoDeadLinks(
      scene.receiver.internalUrl,
      scene.pages.map(([, path]) => path),
    )
  })

  it('ends the first page on a phone after four screens, with eight alarms', async () => {
    const page = await openPage(browser, at('/'), { viewport: phone })
    await page.locator('.result').first().waitFor()
    expect(await page.evaluate('document.documentElement.scrollHeight')).toBeLessThan(3400)
  })

  it('shows the page of every delivery, request and refused arrival completely', async () => {
    const { sql } = database
    const paths = [
      ...(await sql`select '/deliveries/' || id as path from mediadock.deliveries order by parked_reason is null, received_at desc limit ${long ? 30 : 6}`),
      ...(await sql`select '/requests/' || request_id as path from mediadock.requests order by tracked_at desc limit ${long ? 20 : 4}`),
      ...(await sql`select '/parked/quarantine/' || id as path from mediadock.quarantine order by id desc limit 2`),
    ].map((row) => String(row['path']))
    expect(paths.length).toBeGreaterThanOrEqual(12)
    const page = await openPage(browser, at('/'))
    for (const path of paths) {
      await page.goto(at(path))
      await expectInert(page)
      await expectNoOverflow(page)
    }
  })
})

async function look(page: Page, part: 'all' | 'colours'): Promise<void> {
  await expectNoOverflow(page)
  await expectAccessible(page, part)
  await expectInert(page)
}
