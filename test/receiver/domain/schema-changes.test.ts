import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { withTestDatabase } from '../../support/database.ts'

const src = path.resolve(import.meta.dirname, '../../../src')
/** Statements that change or lock tables. */
const changes =
  /\b(?:create|alter|drop|truncate|attach|detach|reindex|cluster|refresh|comment on|lock)\s+(?:or replace\s+)?(?:unlogged\s+|unique\s+|temp(?:orary)?\s+|materialized\s+)?(?:table|index|schema|partition|function|view|sequence|type|trigger|constraint|column)\b|\btruncate\s+\w+\.|\bvacuum\s+(?:full\b|\w+\.)/i

/** Where a schema is made and brought up to date, each step with a limit to its waiting for locks (test/platform/migrate.test.ts). */
const allowed = ['platform/postgres/migrate.ts', 'platform/postgres/large-indexes.ts']

describe('statements that change the schema', () => {
  it('occur in src only where their wait for locks is bounded', async () => {
    const files = (await fs.readdir(src, { recursive: true })).filter(
      (file) => file.endsWith('.ts') && !allowed.includes(file),
    )
    const found: string[] = []
    for (const file of files) {
      for (const line of (await fs.readFile(path.join(src, file), 'utf8')).split('\n')) {
        if (changes.test(line) && !/^\s*(?:\/\/|\*|\/\*\*)/.test(line)) found.push(`${file}: ${line.trim()}`)
      }
    }
    expect(found).toEqual([])
    expect(changes.test('alter table mediadock.arrivals attach partition x')).toBe(true)
    expect(changes.test('create unlogged table a.b ()')).toBe(true)
    expect(changes.test('truncate mediadock.arrivals')).toBe(true)
  })

  it('in functions wait 200 ms for a lock, and resolve names in no schema that others write to', async () => {
    const { sql } = await withTestDatabase()
    const functions = await sql`
      select n.nspname || '.' || p.proname as name, p.prosrc as body, p.prosecdef as definer, coalesce(p.proconfig, '{}') as settings,
        exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a where a.grantee = 0) as "forEveryone"
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('mediadock', 'provider')`
    const changing = functions.filter(({ body }) => changes.test(body))
    expect(changing.map(({ name }) => String(name)).toSorted()).toEqual([
      'mediadock.drop_arrival_day',
      'mediadock.make_arrival_day',
    ])
    for (const { settings } of changing) expect(settings).toContain('lock_timeout=200ms')
    for (const { name, settings } of functions)
      expect({ name, settings }).toEqual({
        name,
        settings: expect.arrayContaining(['search_path=pg_catalog, pg_temp']),
      })
    for (const { name, settings, forEveryone } of functions.filter(({ definer }) => definer)) {
      expect({ name, settings, forEveryone }).toEqual({
        name,
        settings: expect.arrayContaining(['search_path=pg_catalog, pg_temp']),
        forEveryone: false,
      })
    }
  })
})

it('tables that grow with deliveries are vacuumed at a fiftieth of dead rows, not a fifth', async () => {
  const { sql } = await withTestDatabase()
  const rows = await sql<{ name: string; threshold: string | null }[]>`
    select c.relname as name, (select option_value from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_vacuum_scale_factor') as threshold
    from pg_class c where c.relnamespace = 'mediadock'::regnamespace and c.relkind = 'r' and not c.relispartition`
  const swept = rows.filter(({ threshold }) => threshold !== null && Number(threshold) <= 0.02).map(({ name }) => name)
  expect(swept.toSorted()).toEqual([
    'attempts',
    'changes',
    'deliveries',
    'feed_entries',
    'inbox',
    'media',
    'media_copies',
    'polls',
    'requests',
  ])
})
