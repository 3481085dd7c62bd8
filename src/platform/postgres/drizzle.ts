import { createRequire } from 'node:module'
import path from 'node:path'
import type * as orm from 'drizzle-orm'
import type * as errors from 'drizzle-orm/errors'
import type * as migrator from 'drizzle-orm/migrator'
import type * as pgCore from 'drizzle-orm/pg-core'
import type * as session from 'drizzle-orm/postgres-js/session'

/**
 * The only module that loads drizzle-orm. Loads it as CommonJS, because its several hundred ES modules take four times
 * as long to load, which would slow down every command. drizzle-kit reads the schemas as CommonJS, where
 * `import.meta.url` is undefined. It runs in the project's folder.
 */
const load = createRequire(import.meta.url ?? path.resolve('package.json'))

const main: typeof orm = load('drizzle-orm')
const pg: typeof pgCore = load('drizzle-orm/pg-core')
export const { DrizzleQueryError }: typeof errors = load('drizzle-orm/errors')
export const { readMigrationFiles }: typeof migrator = load('drizzle-orm/migrator')
export const { PostgresJsSession }: typeof session = load('drizzle-orm/postgres-js/session')

export const { and, between, count, desc, eq, gt, gte, inArray, is, isNotNull } = main
export const { isNull, lt, lte, max, ne, not, or, sql } = main
export const { getTableColumns, getViewSelectedFields, StringChunk, View } = main
export const { alias, unionAll, customType, PgDatabase, PgDialect, pgSchema } = pg

export const { bigint, bigserial, boolean, doublePrecision, integer, numeric, real, smallint, text, uuid } = pg
export const { check, index, primaryKey, unique, uniqueIndex } = pg

export const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })

/** A time. The builder reads it as ISO 8601; `infinity` stays as Postgres writes it. */
export const instant = customType<{ data: string; driverData: string }>({
  dataType: () => 'timestamp with time zone',
  fromDriver: (text) => (text.endsWith('infinity') ? text : new Date(text).toISOString()),
})

/** JSON, which the driver already parses. drizzle's own type would parse a JSON string again. */
export const jsonb = customType<{ data: unknown }>({
  dataType: () => 'jsonb',
  toDriver: (value) => JSON.stringify(value),
})

export type { SQL, Table } from 'drizzle-orm'
export type { ExtraConfigColumn, IndexBuilder, PgUpdateSetSource } from 'drizzle-orm/pg-core'
export type { PostgresJsQueryResultHKT } from 'drizzle-orm/postgres-js/session'

// The classes are types as well.
export type View = orm.View
export type StringChunk = orm.StringChunk
export type Column = orm.Column
export type PgSchema = pgCore.PgSchema
export type PgDatabase<Result extends session.PostgresJsQueryResultHKT> = pgCore.PgDatabase<Result>
