import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'

const page = path.resolve(import.meta.dirname, '../../docs/scaling.md')

it('docs/scaling.md names every unique key that does not hold request_id', async () => {
  const text = await fs.readFile(page, 'utf8')
  const [, statement = '', after = ''] = /```sql\n([^]*?)```([^]*)/.exec(text) ?? []
  const { sql } = await withTestDatabase()
  const rows = await sql.unsafe<{ table: string; 'unique by': string }[]>(statement)
  const printed = [...after.matchAll(/^\| `([\w.]+)` \| ([\w, ]+) \|/gm)].map(([, table, by]) => [table, by])
  expect(printed).toEqual(rows.map((row) => [row.table.replace('mediadock.', ''), row['unique by']]))
})
