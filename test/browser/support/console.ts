import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { expect, onTestFinished } from 'vitest'

const require = createRequire(import.meta.url)
const axeSource = readFile(require.resolve('axe-core/axe.min.js'), 'utf8')

export type Look = BrowserContextOptions & {
  /** What the console may say besides: the browser logs each answer that is no success. */
  expectProblems?: boolean
  /** What the browser says that its language is, instead of the machine's. */
  language?: string
}

export { phone, schemes } from './look.ts'

/** Opens a page of the console; what the browser's console says in error fails the test when it ends. */
export async function openPage(browser: Browser, url: string, { expectProblems = false, language, ...look }: Look = {}): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...look })
  if (language !== undefined) {
    await context.addInitScript(`Object.defineProperty(navigator, 'language', { value: ${JSON.stringify(language)}, configurable: true })`)
  }
  const page = await context.newPage()
  const problems: string[] = []
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()))
  page.on('pageerror', (error) => problems.push(String(error)))
  onTestFinished(async () => {
    await context.close()
    if (!expectProblems) expect(problems, 'what the browser complained of').toEqual([])
  })
  await page.goto(url)
  return page
}

/** Fails for every violation that axe calls serious or critical, named with its element. */
export async function expectAccessible(page: Page): Promise<void> {
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(await axeSource)
  const violations = await page.evaluate<{ id: string; impact: string; nodes: { html: string }[] }[]>(
    'axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations)',
  )
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  expect(serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`))).toEqual([])
}

/** The page itself never scrolls sideways: wide tables scroll in their own box. */
export async function expectNoOverflow(page: Page): Promise<void> {
  const [shown, wide] = await page.evaluate<[number, number]>('[innerWidth, document.documentElement.scrollWidth]')
  expect(wide).toBeLessThanOrEqual(shown)
}

/** Writes a picture where SHOTS names a folder: to be looked at. */
export async function shoot(page: Page, name: string): Promise<void> {
  const folder = process.env['SHOTS']
  if (folder !== undefined) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true })
}
