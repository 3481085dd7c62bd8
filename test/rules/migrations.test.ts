import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')

// A table that stands in a file which is not read would be dropped by the next migration.
it.each(['receiver', 'provider'])(
  'the migrations of the %s make all that its schemas say, and nothing else',
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

/** Two versions run side by side while replicas are replaced: what the one before writes must still be there, and nobody may wait. */
const refused: readonly [RegExp, string][] = [
  [/\bdrop column\b/i, 'drops a column that the version before writes'],
  [/\brename\b/i, 'renames what the version before names'],
  [/\bdrop table\b/i, 'drops a table that the version before writes'],
  [/\balter column "?\w+"? (?:set data )?type\b/i, 'rewrites a table under a lock'],
  [/\balter column "?\w+"? set not null\b/i, 'reads a table under a lock, and refuses rows of the version before'],
  [
    /\badd column (?:if not exists )?"\w+" (?![^;]*\bdefault\b)[^;]*\bnot null\b/i,
    'refuses rows of the version before',
  ],
  [
    /\badd constraint (?![^;]*\bnot valid\b)/i,
    'reads a table under a lock: add it NOT VALID, and validate it in a migration of its own',
  ],
  [/\bcreate unique index\b/i, 'is made under a lock, unless its table is new'],
]
/** From before there was a release to be replaced. */
const excepted = new Set([
  'provider/0000_create_provider.sql',
  'provider/0001_keep_position_with_idempotency_key.sql',
  'provider/0004_count_calls_of_any_minute.sql',
  'receiver/0009_whose_word.sql',
  'receiver/0010_landed_with_media.sql',
  // Its table is new.
  'receiver/0018_issues_and_replays.sql',
])

it('no migration takes away what the version before writes, or keeps it waiting', async () => {
  const files = (await fs.readdir(path.join(root, 'drizzle'), { recursive: true })).filter((file) =>
    file.endsWith('.sql'),
  )
  const found = await Promise.all(
    files.map(async (file) => {
      const text = (await fs.readFile(path.join(root, 'drizzle', file), 'utf8')).replaceAll(
        /^--.*$|\$\$[^]*?\$\$/gm,
        '',
      )
      return refused.flatMap(([pattern, why]) => (pattern.test(text) ? [`${file} ${why}`] : []))
    }),
  )
  expect(files.length).toBeGreaterThan(20)
  expect(found.flat().filter((line) => !excepted.has(line.split(' ', 1).join()))).toEqual([])
  // What was excepted would be found.
  expect(new Set(found.flat().map((line) => line.split(' ', 1).join()))).toEqual(excepted)
})
