import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')
const tsc = path.join(root, 'node_modules/typescript/bin/tsc')

/** One column of each schema, and files that read or write it: by the builder or in text. */
const renamed = [
  {
    schema: 'receiver/domain/schema.ts',
    column: 'next_poll_at',
    files: ['receiver/queries/requests.ts'],
  },
  {
    schema: 'receiver/domain/budgets-schema.ts',
    column: 'blocked_until',
    files: ['receiver/gauges/call-budgets.ts'],
  },
  { schema: 'platform/pages/tables.ts', column: 'expires_at', files: ['platform/pages/sessions.ts'] },
  {
    schema: 'provider/domain/schema.ts',
    column: 'max_attempts',
    files: ['provider/webhooks/outbox-claims.ts', 'provider/webhooks/delivery-history.ts'],
  },
]

describe('a column that is renamed in its schema', () => {
  let errors: string[]

  beforeAll(async () => {
    const copy = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-columns-'))
    for (const name of ['src', 'package.json', 'tsconfig.json'])
      await fs.cp(path.join(root, name), path.join(copy, name), { recursive: true })
    await fs.symlink(path.join(root, 'node_modules'), path.join(copy, 'node_modules'))
    for (const { schema, column } of renamed) {
      const file = path.join(copy, 'src', schema)
      const text = await fs.readFile(file, 'utf8')
      expect(text).toContain(`${column}: `)
      await fs.writeFile(file, text.replaceAll(`${column}: `, `${column}_renamed: `))
    }
    // It ends with the number of errors, which are what is looked for.
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, '--singleThreaded', '--noEmit', '-p', copy], {
      cwd: copy,
      maxBuffer: 64 * 1024 * 1024,
    }).catch((error: { stdout: string }) => error)
    errors = stdout.split(/^(?=src\/)/m)
    await fs.rm(copy, { recursive: true })
  }, 300_000)

  it.each(renamed.flatMap(({ column, files }) => files.map((file) => [column, file] as const)))(
    '%s does not compile in %s',
    (column, file) => {
      expect(
        errors.filter(
          (error) =>
            error.startsWith(`src/${file}(`) && new RegExp(`['"]${column}['"]|'${column}_renamed'`).test(error),
        ),
      ).not.toEqual([])
    },
  )
})
