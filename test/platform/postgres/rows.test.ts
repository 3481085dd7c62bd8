import { Column, getTableColumns, is, sql } from 'drizzle-orm'
import { PgArray, PgTable } from 'drizzle-orm/pg-core'
import { expect, expectTypeOf, it, onTestFinished } from 'vitest'
import { columnsOf, list } from '../../../src/platform/postgres/columns.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import type { RowOf } from '../../../src/platform/postgres/rows.ts'
import * as provider from '../../../src/provider/domain/schema.ts'
import * as arriving from '../../../src/receiver/domain/arrivals-schema.ts'
import * as fetching from '../../../src/receiver/domain/budgets-schema.ts'
import * as submitting from '../../../src/receiver/domain/generations-schema.ts'
import * as onCall from '../../../src/receiver/domain/on-call-schema.ts'
import * as readers from '../../../src/receiver/domain/results-schema.ts'
import * as receiver from '../../../src/receiver/domain/schema.ts'
import { testServers, withTestDatabase } from '../../support/database.ts'

/** Of each type of column that a schema has, what Postgres writes and what RowOf says that the driver makes of it. */
const samples: Record<string, [value: string, made: unknown]> = {
  PgUUID: [`'00000000-0000-4000-8000-000000000001'::uuid`, '00000000-0000-4000-8000-000000000001'],
  PgText: [`'text'::text`, 'text'],
  PgBoolean: ['true', true],
  PgSmallInt: ['1::smallint', 1],
  PgInteger: ['1::integer', 1],
  PgReal: ['1.5::real', 1.5],
  PgDoublePrecision: ['1.5::double precision', 1.5],
  PgBigInt53: ['1::bigint', '1'],
  PgBigSerial53: ['1::bigint', '1'],
  PgNumeric: ['1.50::numeric', '1.50'],
  'timestamp with time zone': [
    `'2026-01-31 03:00:00.123456+00'::timestamptz`,
    expect.stringMatching(/^2026-01-31 03:00:00\.123456\+00/),
  ],
  jsonb: [`'{"a":1}'::jsonb`, { a: 1 }],
  bytea: [`'\\x0102'::bytea`, Buffer.from([1, 2])],
  'PgText[]': [`array['a']::text[]`, ['a']],
  'PgInteger[]': ['array[1]::integer[]', [1]],
  'PgBigInt53[]': ['array[1]::bigint[]', ['1']],
}

const nameOf = (column: Column) => (column.columnType === 'PgCustomColumn' ? column.getSQLType() : column.columnType)

const typesInUse = new Set(
  [receiver, arriving, fetching, submitting, onCall, provider]
    .flatMap((schema) => Object.values<unknown>(schema))
    .flatMap((value) => (is(value, PgTable) ? Object.values<unknown>(getTableColumns(value)) : []))
    .flatMap((column) =>
      is(column, PgArray) ? [`${nameOf(column.baseColumn)}[]`] : is(column, Column) ? [nameOf(column)] : [],
    ),
)

it.each(testServers)('the driver returns each column type as rows are typed (%s)', async (server) => {
  expect([...typesInUse].toSorted()).toEqual(Object.keys(samples).toSorted())
  const pool = createPool({ url: (await withTestDatabase(server)).url, max: 1 })
  onTestFinished(() => pool.close())
  for (const [type, [value, made]] of Object.entries(samples)) {
    const [row] = await pool.db
      .execute(sql`set time zone 'UTC'`)
      .then(() => pool.db.execute(sql`select ${sql.raw(value)} as value`))
    expect([type, row?.['value']]).toEqual([type, made])
  }
})

it.each(testServers)('the builder reads times as ISO 8601 and JSON unchanged (%s)', async (server) => {
  const pool = createPool({ url: (await withTestDatabase(server)).url, max: 1 })
  onTestFinished(() => pool.close())
  const id = '00000000-0000-4000-8000-000000000001'
  const tracked = { request_id: id, tracked_at: '2026-01-31T03:00:00.123Z', next_poll_at: 'infinity' }
  await pool.db.insert(receiver.requests).values({ ...tracked, metadata: '"5"', cost: '1.50' })
  const { request_id, tracked_at, next_poll_at, metadata, cost } = receiver.requests
  const rows = await pool.db.select({ request_id, tracked_at, next_poll_at, metadata, cost }).from(receiver.requests)
  expect(rows).toEqual([{ ...tracked, metadata: '"5"', cost: '1.50' }])
})

it("rows are typed by Postgres's names, with null for nullable columns", () => {
  expectTypeOf<
    RowOf<typeof receiver.deliveries, 'id' | 'status' | 'received_at' | 'headers' | 'body' | 'flags'>
  >().toEqualTypeOf<{
    id: string
    status: 'OK' | 'ERROR' | 'CANCELED' | null
    received_at: string
    headers: Record<string, string>
    body: Buffer
    flags: string[]
  }>()
  expectTypeOf<RowOf<typeof readers.results, 'cost' | 'created_at' | 'media_complete'>>().toEqualTypeOf<{
    cost: string | null
    created_at: string
    media_complete: boolean
  }>()
  expectTypeOf<RowOf<typeof fetching.callBudgets, 'slots' | 'slots_until' | 'blocked_until'>>().toEqualTypeOf<{
    slots: number[]
    slots_until: string
    blocked_until: string | null
  }>()
  expectTypeOf<RowOf<typeof provider.rateWindows, 'at_ms'>>().toEqualTypeOf<{ at_ms: string[] }>()
  // @ts-expect-error There is no such column.
  expectTypeOf<RowOf<typeof receiver.deliveries, 'webhookId'>>().not.toBeAny()
})

it('columns appear in a statement by name, with their alias if there is one', async () => {
  const pool = createPool({ url: (await withTestDatabase()).url, max: 1 })
  onTestFinished(() => pool.close())
  const deliveries = columnsOf(receiver.deliveries)
  const d = columnsOf(receiver.deliveries, 'd')
  const results = columnsOf(readers.results)
  const statement = sql`select ${d.id}, ${list(d, 'webhook_id', 'body')}, ${list(deliveries, 'id')}, ${results.cost} where ${1}`
  expect(
    pool.db
      .select({ statement })
      .from(sql`x`)
      .toSQL().sql,
  ).toBe('select select d.id, d.webhook_id, d.body, id, cost where $1 from x')
  // @ts-expect-error There is no such column.
  expect(d.webhookId).toBeUndefined()
})
