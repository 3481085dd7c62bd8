import { Column, getTableColumns, getViewSelectedFields, is } from 'drizzle-orm'
import { getTableConfig, getViewConfig, PgTable, PgView } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import * as providerConsole from '../../src/provider/domain/console-schema.ts'
import * as provider from '../../src/provider/domain/schema.ts'
import * as archiving from '../../src/receiver/archive/archive-schema.ts'
import * as arriving from '../../src/receiver/domain/arrivals-schema.ts'
import * as fetching from '../../src/receiver/domain/budgets-schema.ts'
import * as feeding from '../../src/receiver/domain/feed-schema.ts'
import * as submitting from '../../src/receiver/domain/generations-schema.ts'
import * as onCall from '../../src/receiver/domain/on-call-schema.ts'
import * as receiver from '../../src/receiver/domain/schema.ts'
import * as subscribing from '../../src/receiver/subscriptions/subscriptions-schema.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

type Described = { at: string; columns: unknown[] }

/** The types of the statements' rows. */
function described(value: unknown): Described[] {
  const of = is(value, PgTable)
    ? { ...getTableConfig(value), all: getTableColumns(value) }
    : is(value, PgView)
      ? { ...getViewConfig(value), all: getViewSelectedFields(value) }
      : undefined
  if (of === undefined) return []
  const columns = Object.values(of.all).flatMap((column) =>
    // Postgres does not know what is never null in a view.
    is(column, Column)
      ? [
          {
            name: column.name,
            type: column.getSQLType().replace('bigserial', 'bigint'),
            notNull: is(value, PgTable) && column.notNull,
          },
        ]
      : [],
  )
  return [{ at: `${of.schema}.${of.name}`, columns: columns.toSorted((a, b) => (a.name < b.name ? -1 : 1)) }]
}

const schemas = [
  receiver,
  archiving,
  arriving,
  fetching,
  feeding,
  submitting,
  subscribing,
  onCall,
  provider,
  providerConsole,
]
  .flatMap((schema) => Object.values(schema))
  .flatMap(described)

it.each(schemas.map(({ at, columns }) => [at, columns] as const))(
  'the schema of %s matches the migrated table',
  async (at, columns) => {
    const made = await database.sql`
    select attname as name, format_type(atttypid, atttypmod) as type, attnotnull as "notNull" from pg_attribute
    where attrelid = ${at}::regclass and attnum > 0 and not attisdropped order by attname collate "C"`
    expect(columns).toEqual(made.map((column) => ({ ...column })))
  },
)
