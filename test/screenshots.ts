import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../src/laptop/embedded-postgres.ts'
import { createLogger } from '../src/platform/logger.ts'
import { migrate } from '../src/platform/postgres/migrate.ts'
import { phone, schemes } from './browser/support/look.ts'
import { startScene } from './browser/support/scene.ts'
import { launchBrowser } from './support/browser.ts'
import { startTestReceiver } from './support/receiver.ts'

// `npm run screenshots`: a picture of every page of the receiver's console, in
// both schemes, wide and on a phone, after an hour of realistic traffic.

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'screenshots' },
    /** A regular expression for the names of pages. */
    only: { type: 'string', default: '' },
    /** The two pictures that README.md shows, into docs/images. */
    docs: { type: 'boolean', default: false },
  },
})
const widths = [
  { name: '1280', viewport: { width: 1280, height: 800 } },
  { name: '400', viewport: phone },
]
const token = 'a token for the sign-in page only'
const root = path.resolve(import.meta.dirname, '..')
const dataDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-screenshots-'))
const server = await startEmbeddedPostgres({ dataDir, logger: createLogger('silent'), settings: { fsync: 'off' } })
const sql = postgres(server.url, { max: 2, onnotice: () => {} })
const browser = await launchBrowser()
try {
  await migrate({ url: server.url, schema: 'mediadock', folder: path.join(root, 'drizzle/receiver') })
  const scene = await startScene({ url: server.url, sql })
  const guarded = await startTestReceiver({ databaseUrl: server.url, settings: { internalToken: token } })
  const at = (where: string) => new URL(where, scene.receiver.internalUrl).href
  const pages: [name: string, url: string, before?: (page: Page) => Promise<unknown>][] = [
    ...scene.pages.map(([name, where]): [string, string] => [name, at(where)]),
    ['sign-in', guarded.internalUrl],
    ['not-found', at('/deliveries/nothing')],
    ['wrong-filter', at('/deliveries?since=yesterday')],
    ['help', at('/deliveries'), (page) => page.keyboard.press('?')],
  ]
  if (values.docs) await shootForDocs(at('/'), scene.ids.pictures)
  else {
    const only = new RegExp(values.only)
    await fs.mkdir(values.out, { recursive: true })
    for (const [name, url, before] of pages) if (only.test(name)) await shoot(browser, { name, url, before })
  }
  await guarded.stop()
  await scene.stop()
} finally {
  await browser.close()
  await sql.end()
  await server.stop()
  await fs.rm(dataDir, { recursive: true, force: true })
}

async function shoot(
  browser: Browser,
  { name, url, before }: { name: string; url: string; before: ((page: Page) => Promise<unknown>) | undefined },
): Promise<void> {
  for (const colorScheme of schemes) {
    for (const { name: width, viewport } of widths) {
      const context = await browser.newContext({ viewport, colorScheme })
      const page = await context.newPage()
      await page.goto(url)
      await page.evaluate(
        `Promise.all([...document.images].map((image) => { image.loading = 'eager'; return image.decode().catch(() => {}) }))`,
      )
      await before?.(page)
      const file = path.join(values.out, `${name}-${width}-${colorScheme}.png`)
      await page.screenshot({ path: file, fullPage: true })
      process.stdout.write(`${file}\n`)
      await context.close()
    }
  }
}

/** The first page, and a result as `psql` prints it; reduced to a palette, so that a checkout stays small. */
async function shootForDocs(firstPage: string, requestId: string): Promise<void> {
  const folder = path.join(root, 'docs/images')
  await fs.mkdir(folder, { recursive: true })
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
  const keep = async (name: string, picture: Buffer) => {
    const { default: sharp } = await import('sharp')
    await sharp(picture).png({ palette: true, colours: 128 }).toFile(path.join(folder, name))
    process.stdout.write(`docs/images/${name}\n`)
  }
  await page.goto(firstPage)
  await keep('now.png', await page.screenshot())
  const rows = await sql`
    select r.status, r.media_complete, r.cost, r.metadata, m.kind, m.position, m.width, m.height
    from mediadock.results r join mediadock.media m using (request_id) where r.request_id = ${requestId}`
  const query = `mediadock=> select r.status, r.media_complete, r.cost, r.metadata, m.kind, m.position, m.width, m.height
mediadock-> from mediadock.results r join mediadock.media m using (request_id);`
  // Off the console's page, whose policy forbids inline styles.
  await page.goto('about:blank')
  await page.setContent(`<pre id="out" style="display: inline-block; margin: 0; padding: 20px; background: #16181d; color: #e6e6e6;
    font: 15px/1.5 'DejaVu Sans Mono', monospace"></pre>`)
  await page.locator('#out').evaluate((pre, text) => void (pre.textContent = text), `${query}\n${printed(rows)}`)
  await keep('result.png', await page.locator('#out').screenshot())
  await page.close()
}

/** Rows as psql prints them. */
function printed(rows: readonly Record<string, unknown>[]): string {
  const names = Object.keys(rows[0] ?? {})
  const text = (value: unknown) => (typeof value === 'object' ? JSON.stringify(value) : String(value))
  const cells = [names, ...rows.map((row) => names.map((name) => text(row[name])))]
  const widths = names.map((_, at) => Math.max(...cells.map((cell) => (cell[at] ?? '').length)))
  const lines = cells.map((cell) => cell.map((one, at) => ` ${one.padEnd(widths[at] ?? 0)} `).join('|'))
  return [lines[0], widths.map((width) => '-'.repeat(width + 2)).join('+'), ...lines.slice(1)].join('\n')
}
