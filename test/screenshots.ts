import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../src/laptop/embedded-postgres.ts'
import { createLogger } from '../src/platform/logger.ts'
import { migrate } from '../src/platform/postgres/migrate.ts'
import { phone, schemes } from './browser/support/look.ts'
import { type Scene, startScene } from './browser/support/scene.ts'
import { launchBrowser } from './support/browser.ts'
import { startTestReceiver } from './support/receiver.ts'

// `npm run screenshots`: a picture of every page of the receiver's console, in
// both schemes, wide and on a phone, after an hour of realistic traffic.

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'screenshots' },
    /** A regular expression for the names of pages. */
    only: { type: 'string', default: '' },
    /** The pictures that README.md shows, into docs/images. Needs psql on the PATH. */
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
  await (values.docs ? shootForDocs() : shootAll())
} finally {
  await browser.close()
  await sql.end()
  await server.stop()
  await fs.rm(dataDir, { recursive: true, force: true })
}

/** A migrated database with an hour of traffic. */
async function withScene(name: string, isCalm: boolean, work: (scene: Scene, url: string) => Promise<void>) {
  await sql`create database ${sql(name)}`
  const url = server.url.replace(/\/[^/]*$/, `/${name}`)
  const own = postgres(url, { max: 2, onnotice: () => {} })
  await migrate({ url, schema: 'mediadock', folder: path.join(root, 'drizzle/receiver') })
  const scene = await startScene({ url, sql: own, isCalm })
  await work(scene, url)
  await scene.stop()
  await own.end()
}

async function shootAll(): Promise<void> {
  await withScene('busy', false, async (scene, url) => {
    const guarded = await startTestReceiver({ databaseUrl: url, settings: { internalToken: token } })
    const at = (where: string) => new URL(where, scene.receiver.internalUrl).href
    const pages: [name: string, url: string, before?: (page: Page) => Promise<unknown>][] = [
      ...scene.pages.map(([name, where]): [string, string] => [name, at(where)]),
      ['sign-in', guarded.internalUrl],
      ['not-found', at('/deliveries/nothing')],
      ['wrong-filter', at('/deliveries?since=yesterday')],
      ['help', at('/deliveries'), (page) => page.keyboard.press('?')],
    ]
    const only = new RegExp(values.only)
    await fs.mkdir(values.out, { recursive: true })
    for (const [name, url, before] of pages) if (only.test(name)) await shoot(browser, { name, url, before })
    await guarded.stop()
  })
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

/** The first page without and with problems, and a result in `psql`; reduced to a palette, so that a checkout stays small. */
async function shootForDocs(): Promise<void> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
  await withScene('media', true, async (scene, url) => {
    await page.goto(scene.receiver.internalUrl)
    await keep('now.png', await page.screenshot())
    const text = await inPsql(url, scene)
    // Off the console's page, whose policy forbids inline styles.
    await page.goto('about:blank')
    await page.setContent(`<pre id="out" style="display: inline-block; margin: 0; padding: 20px; background: #16181d; color: #e6e6e6;
      font: 15px/1.5 'DejaVu Sans Mono', monospace"></pre>`)
    await page.locator('#out').evaluate((pre, text) => void (pre.textContent = text), text)
    await keep('result.png', await page.locator('#out').screenshot())
  })
  await withScene('troubled', false, async (scene) => {
    await page.goto(scene.receiver.internalUrl)
    await keep('trouble.png', await page.screenshot())
  })
  await page.close()
}

async function keep(name: string, picture: Buffer): Promise<void> {
  const { default: sharp } = await import('sharp')
  const folder = path.join(root, 'docs/images')
  await fs.mkdir(folder, { recursive: true })
  await sharp(picture).png({ palette: true, colours: 128 }).toFile(path.join(folder, name))
  process.stdout.write(`docs/images/${name}\n`)
}

/** A query and what psql prints for it, with links as a provider sends them. */
async function inPsql(url: string, { ids }: Scene): Promise<string> {
  const lines = [
    'select status, media_complete, kind, position, width, height, url',
    'from mediadock.results join mediadock.media using (request_id)',
    `where request_id = '${ids.pictures}';`,
  ]
  const own = postgres(url, { max: 1 })
  // The scene draws its pictures at random. Here each has the number of its position.
  await own`update mediadock.media set url = 'https://media.example.com/image-' || position || '.webp'
    where request_id = ${ids.pictures} and kind = 'image'`
  await own.end()
  const { stdout } = await promisify(execFile)('psql', [
    '--no-psqlrc',
    `--dbname=${url}`,
    `--command=${lines.join(' ')}`,
  ])
  return `${lines.map((line, at) => `media${at === 0 ? '=' : '-'}> ${line}`).join('\n')}\n${stdout.trimEnd()}`
}
