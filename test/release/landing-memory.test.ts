import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { long } from '../chaos/length.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { storeFailures } from './support/stored-failures.ts'

const mib = 1024 * 1024
/** More than the process could hold at once. */
const { failures, heapMb } = long ? { failures: 1100, heapMb: 512 } : { failures: 110, heapMb: 96 }

it(`${failures} failures of 1 MB are landed by a process with ${heapMb} MB`, async () => {
  const database = await withTestDatabase(preferredServer)
  await storeFailures(database, failures, mib)
  const child = spawn(
    process.execPath,
    [
      `--max-old-space-size=${heapMb}`,
      path.join(import.meta.dirname, '../receiver/landing/support/land-all.ts'),
      database.url,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  const printed: string[] = []
  child.stdout.setEncoding('utf8').on('data', (text: string) => printed.push(text))
  const [code] = await once(child, 'exit')
  expect(code).toBe(0)
  const landed = JSON.parse(printed.join(''))
  expect(landed).toMatchObject({ landed: failures, failed: 0, parked: 0 })
  // Bodies lie beside the heap until they are text.
  expect(landed.rss_mb).toBeLessThan(heapMb + 200)
  const [row] =
    await database.sql`select count(*)::int as n, min(length(error_message)) as shortest from mediadock.requests where status = 'FAILED'`
  expect(row).toMatchObject({ n: failures })
}, 180_000)
