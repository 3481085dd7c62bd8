import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'

const root = path.resolve(import.meta.dirname, '../..')

it.each([
  ['results', 'docs/results.md'],
  ['media', 'docs/results.md'],
  ['feed', 'docs/feed.md'],
])('the comments of mediadock.%s in Postgres match the table in %s', async (name, page) => {
  const { sql } = await withTestDatabase()
  const columns = await sql<{ name: string; type: string; meaning: string | null }[]>`
    select attname as name, format_type(atttypid, null) as type, col_description(attrelid, attnum) as meaning
    from pg_attribute
    where attrelid = ${`mediadock.${name}`}::regclass and attnum > 0 and not attisdropped order by attnum`
  const rows = columns.map((column) => `| \`${column.name}\` | ${column.type} | ${column.meaning} |`)
  expect(await fs.readFile(path.join(root, page), 'utf8')).toContain(`| column | type | meaning |
|---|---|---|
${rows.join('\n')}
`)
})
