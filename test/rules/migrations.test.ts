import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')

// A table that stands in a file which is not read would be dropped by the next migration.
it.each(['receiver', 'provider'])('the migrations of the %s make all that its schemas say, and nothing else', async (program) => {
  const out = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-migrations-'))
  onTestFinished(() => fs.rm(out, { recursive: true }))
  await fs.cp(path.join(root, 'drizzle', program), out, { recursive: true })
  const before = await fs.readdir(out)
  const drizzleKit = path.join(root, 'node_modules/drizzle-kit/bin.cjs')
  const args = [
    drizzleKit,
    'generate',
    '--dialect',
    'postgresql',
    '--schema',
    `./src/${program}/**/*schema.ts`,
    '--out',
    path.relative(root, out),
  ]
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root })
  expect(stdout).toContain('No schema changes')
  expect(await fs.readdir(out)).toEqual(before)
})
