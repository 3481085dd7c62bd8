import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { Browser, BrowserContextOptions, ConsoleMessage, Page } from 'playwright-core'
import { expect, onTestFinished } from 'vitest'
import { long } from '../../chaos/length.ts'
import { lendPage, newPage, takeBack, wideViewport } from './lent-pages.ts'
import { phone, schemes } from './look.ts'

const require = createRequire(import.meta.url)
const axeScript = readFile(require.resolve('axe-core/axe.min.js'), 'utf8')

export type Look = Omit<BrowserContextOptions, 'viewport'> & {
  viewport?: { width: number; height: number }
  /** Further console messages that are allowed. The browser logs each answer other than a success. */
  expectProblems?: boolean
  /** The browser's language, instead of the machine's. */
  language?: string
  /** Where the test changes what a page cannot be rid of again, as its clock. */
  isForItself?: boolean
}

export { phone, schemes } from './look.ts'

/** Opens a page of the console; what the browser's console says in error fails the test when it ends. */
export async function openPage(browser: Browser, url: string, look: Look = {}): Promise<Page> {
  const {
    expectProblems = false,
    language,
    isForItself = false,
    colorScheme = null,
    viewport = wideViewport,
    ...more
  } = look
  const isLent = language === undefined && !isForItself && Object.keys(more).length === 0
  const page = isLent ? await lendPage(browser) : await newPage(browser, { viewport, colorScheme, ...more })
  const problems: string[] = []
  const onConsole = (message: ConsoleMessage) => message.type() === 'error' && problems.push(message.text())
  const onError = (error: Error) => problems.push(String(error))
  page.on('console', onConsole).on('pageerror', onError)
  onTestFinished(async () => {
    await (isLent ? takeBack(browser, page) : page.context().close())
    if (!expectProblems) expect(problems, 'what the browser complained of').toEqual([])
  })
  if (isLent && colorScheme !== null) await page.emulateMedia({ colorScheme })
  if (isLent && viewport !== wideViewport) await page.setViewportSize(viewport)
  if (language !== undefined) {
    await page.addInitScript(
      `Object.defineProperty(navigator, 'language', { value: ${JSON.stringify(language)}, configurable: true })`,
    )
  }
  await page.goto(url)
  return page
}

const colours = ['color-contrast', 'link-in-text-block']
const parts = {
  all: () => true,
  colours: (id: string) => colours.includes(id),
}

/** Fails for every violation that axe calls serious or critical, named with its element; the rules that find lesser ones are not run. */
export async function expectAccessible(page: Page, part: keyof typeof parts = 'all', within = 'html'): Promise<void> {
  // Halfway to another scheme a colour may be hard to read.
  await page.evaluate('document.getAnimations().forEach((each) => each instanceof CSSTransition && each.finish())')
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(await axeScript)
  const options = {
    resultTypes: ['violations'],
    preload: false,
    runOnly: (await seriousRules(page)).filter(parts[part]),
  }
  const violations = await page.evaluate<{ id: string; html: string[] }[]>(
    `axe.run(${JSON.stringify(within)}, ${JSON.stringify(options)})
      .then(({ violations }) => violations.map(({ id, nodes }) => ({ id, html: nodes.map(({ html }) => html) })))`,
  )
  expect(violations.flatMap(({ id, html }) => html.map((each) => `${id}: ${each.slice(0, 200)}`))).toEqual([])
}

let serious: string[] | undefined

/** Of those that axe runs by itself. */
async function seriousRules(page: Page): Promise<string[]> {
  serious ??= await page.evaluate<string[]>(
    `axe._audit.rules
      .filter(({ impact, enabled, tags }) => /^(serious|critical)$/.test(impact) && enabled && !tags.includes('experimental'))
      .map(({ id }) => id)`,
  )
  expect(serious.length, 'rules of axe for what is serious').toBeGreaterThan(50)
  return serious
}

/** Neither the page nor a table scrolls sideways. On a phone, a table that is not a list of cards may. */
export async function expectNoOverflow(page: Page): Promise<void> {
  const [shown, wide] = await page.evaluate<[number, number]>('[innerWidth, document.documentElement.scrollWidth]')
  expect(wide).toBeLessThanOrEqual(shown)
  const boxes = shown > phone.width ? '.scroll' : '.scroll:has(.cards)'
  const cut = `[...document.querySelectorAll('${boxes}')].flatMap((box) =>
    box.scrollWidth > box.clientWidth + 1 ? [box.ariaLabel + ': ' + box.scrollWidth + ' in ' + box.clientWidth] : [])`
  expect(await page.evaluate(cut), 'tables wider than their box').toEqual([])
}

/**
 * Checks the page in full in light colours on a wide screen, and its contrast in dark ones on a phone. The long form
 * checks everything in each. So do pictures, of which each combination is taken.
 */
export async function expectGoodLooks(page: Page, name: string): Promise<void> {
  const isWhole = long || process.env['SHOTS'] !== undefined
  for (const colorScheme of schemes) {
    for (const viewport of [wideViewport, phone]) {
      if (!isWhole && (colorScheme === 'light') !== (viewport === wideViewport)) continue
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize(viewport)
      await expectNoOverflow(page)
      await expectAccessible(page, isWhole || colorScheme === 'light' ? 'all' : 'colours')
      await shoot(page, `${name}-${colorScheme}${viewport === phone ? '-phone' : ''}`)
    }
  }
  await page.setViewportSize(wideViewport)
}

/** Writes a picture where SHOTS names a folder: to be looked at. */
export async function shoot(page: Page, name: string): Promise<void> {
  const folder = process.env['SHOTS']
  if (folder !== undefined) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true })
}
