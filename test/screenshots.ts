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
    /** Only pages whose name holds this. */
    only: { type: 'string', default: '' },
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
  await fs.mkdir(values.out, { recursive: true })
  for (const [name, url, before] of pages) if (name.includes(values.only)) await shoot(browser, { name, url, before })
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
