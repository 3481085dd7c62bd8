import { createRequire } from 'node:module'
import path from 'node:path'
import type * as orm from 'drizzle-orm'
import type * as errors from 'drizzle-orm/errors'
import type * as migrator from 'drizzle-orm/migrator'
import type * as pgCore from 'drizzle-orm/pg-core'
import type * as session from 'drizzle-orm/postgres-js/session'

/**
 * What is used of drizzle-orm, and the one place that loads it: as CommonJS, because
 * its several hundred ES modules cost each process, so each command too, 0.4 s of a CPU
 * before the first line of ours; as CommonJS they cost a tenth of a second.
 *
 * drizzle-kit reads the schemas as CommonJS, where a module has no URL: it is run in the project's folder.
 */
const load = createRequire(import.meta.url ?? path.resolve('package.json'))

const { is, sql, getTableColumns, getViewSelectedFields, Column, StringChunk, View }: typeof orm = load('drizzle-orm')
const { DrizzleQueryError }: typeof errors = load('drizzle-orm/errors')
const { readMigrationFiles }: typeof migrator = load('drizzle-orm/migrator')
const { PostgresJsSession }: typeof session = load('drizzle-orm/postgres-js/session')
const pg: typeof pgCore = load('drizzle-orm/pg-core')
const { PgDatabase, PgDialect, pgSchema, customType } = pg

export { is, sql, getTableColumns, getViewSelectedFields, Column, DrizzleQueryError, readMigrationFiles }
export { PgDatabase, PgDialect, PostgresJsSession, StringChunk, View, customType, pgSchema }

/** What columns, keys and indexes of a schema are made with. */
export const {
  bigint,
  bigserial,
  boolean,
  doublePrecision,
  integer,
  jsonb,
  numeric,
  real,
  smallint,
  text,
  timestamp,
  uuid,
} = pg
export const { check, index, primaryKey, unique, uniqueIndex } = pg

export type { Assume, SQL, SQLWrapper, Table } from 'drizzle-orm'
export type { PostgresJsQueryResultHKT } from 'drizzle-orm/postgres-js/session'

// The classes are types as well.
export type View = orm.View
export type StringChunk = orm.StringChunk
export type Column = orm.Column
export type PgDatabase<Result extends session.PostgresJsQueryResultHKT> = pgCore.PgDatabase<Result>
