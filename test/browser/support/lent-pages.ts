import type { Browser, BrowserContextOptions, Page } from 'playwright-core'

// A new page is a process of its own that compiles every script once more: it
// costs more than most tests do with it. So the pages of a browser are lent to
// one test after the other, each in a context of its own, as it was at first.

export const wideViewport = { width: 1280, height: 800 } as const

/** The events that tests listen for. */
const events = [
  'console',
  'pageerror',
  'dialog',
  'download',
  'request',
  'requestfinished',
  'requestfailed',
  'response',
] as const
/** More than these are not kept for the next test. */
const keptPages = 3

type Shelf = { idle: Page[]; lent: Set<Page> }
const shelves = new WeakMap<Browser, Shelf>()

function shelfOf(browser: Browser): Shelf {
  const shelf = shelves.get(browser) ?? { idle: [], lent: new Set() }
  shelves.set(browser, shelf)
  return shelf
}

/** A page in a context of its own. Its time limit only ends waits for what never comes. */
export async function newPage(browser: Browser, options: BrowserContextOptions): Promise<Page> {
  const context = await browser.newContext(options)
  context.setDefaultTimeout(60_000)
  return context.newPage()
}

export async function lendPage(browser: Browser): Promise<Page> {
  const { idle, lent } = shelfOf(browser)
  const page = idle.pop() ?? (await newPage(browser, { viewport: wideViewport }))
  lent.add(page)
  return page
}

/** Without what the test has left in it: listeners, cookies, its scheme and size, where the pointer rests. */
export async function takeBack(browser: Browser, page: Page): Promise<void> {
  const { idle, lent } = shelfOf(browser)
  if (!lent.delete(page) || page.isClosed()) return
  if (idle.length >= keptPages) return page.context().close()
  for (const event of events) page.removeAllListeners(event)
  await page.goto('about:blank')
  await page.context().clearCookies()
  await page.emulateMedia({ colorScheme: null })
  await page.setViewportSize(wideViewport)
  await page.mouse.move(-1, -1)
  idle.push(page)
}

/** For pages that refresh themselves, which must not outlive what they ask; those that no other test gets are closed. */
export async function takeAllBack(browser: Browser): Promise<void> {
  const { idle, lent } = shelfOf(browser)
  await Promise.all([...lent].map((page) => takeBack(browser, page)))
  const kept = new Set(idle.map((page) => page.context()))
  const others = browser.contexts().filter((context) => !kept.has(context))
  await Promise.all(others.map((context) => context.close()))
}
