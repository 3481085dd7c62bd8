import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')

// A table that stands in a file which is not read would be dropped by the next migration.
it.each(['receiver', 'provider'])(
  'the migrations of the %s create exactly what its schemas describe',
  async (program) => {
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
  },
)

/**
 * Two versions run side by side during an upgrade. The older one's writes must still work, and no writer may wait long.
 */
const refused: readonly { pattern: RegExp; why: string; example: string }[] = [
  {
    pattern: /\bdrop column\b/i,
    why: 'drops a column that the version before writes',
    example: 'ALTER TABLE "a"."b" DROP COLUMN "c"',
  },
  {
    pattern: /\brename\b/i,
    why: 'renames what the version before names',
    example: 'ALTER TABLE "a"."b" RENAME COLUMN "c" TO "d"',
  },
  { pattern: /\bdrop table\b/i, why: 'drops a table that the version before writes', example: 'DROP TABLE "a"."b"' },
  {
    pattern: /\balter column "?\w+"? (?:set data )?type\b/i,
    why: 'rewrites a table under a lock',
    example: 'ALTER TABLE "a"."b" ALTER COLUMN "c" SET DATA TYPE bigint',
  },
  {
    pattern: /\balter column "?\w+"? set not null\b/i,
    why: 'reads a table under a lock, and refuses rows of the version before',
    example: 'ALTER TABLE "a"."b" ALTER COLUMN "c" SET NOT NULL',
  },
  {
    pattern: /\badd column (?:if not exists )?"\w+" (?![^;]*\bdefault\b)[^;]*\bnot null\b/i,
    why: 'refuses rows of the version before',
    example: 'ALTER TABLE "a"."b" ADD COLUMN "c" text NOT NULL',
  },
  {
    pattern: /\badd constraint (?![^;]*\bnot valid\b)/i,
    why: 'reads a table under a lock: add it NOT VALID, and validate it in another migration',
    example: 'ALTER TABLE "a"."b" ADD CONSTRAINT "c" CHECK (d > 0)',
  },
  {
    pattern: /\bcreate unique index\b/i,
    why: 'is made under a lock, unless its table is new',
    example: 'CREATE UNIQUE INDEX "a" ON "b"."c" USING btree ("d")',
  },
]

/** Each program's first migration has no version before it. */
const isLater = (file: string) => /^\w+\/(?!0000_)\d{4}_\w+\.sql$/.test(file)

/** Reads nothing, since a constraint that the same migration validates shows that no row has a null. */
const requireValidated = /\bvalidate constraint "\w+_(\w+)_not_null";[^;]*\balter column "\1" set not null;/gi

const problemsOf = (sql: string) => {
  const statements = sql
    .replaceAll(/^--.*$|\$\$[^]*?\$\$|--> statement-breakpoint/gm, '')
    .replaceAll(requireValidated, '')
  return refused.filter(({ pattern }) => pattern.test(statements)).map(({ why }) => why)
}

it('no migration removes or blocks what the previous version writes', async () => {
  for (const { why, example } of refused) expect(problemsOf(example)).toEqual([why])
  expect(isLater('receiver/0001_add_something.sql')).toBe(true)
  const files = await fs.readdir(path.join(root, 'drizzle'), { recursive: true })
  const found = await Promise.all(
    files.filter(isLater).map(async (file) => {
      const problems = problemsOf(await fs.readFile(path.join(root, 'drizzle', file), 'utf8'))
      return problems.map((why) => `${file} ${why}`)
    }),
  )
  expect(found.flat()).toEqual([])
})
