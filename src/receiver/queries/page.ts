import { z } from 'zod'
import {
  and,
  type Column,
  eq,
  getTableColumns,
  gte,
  lt,
  sql,
  type SQL,
  type StringChunk,
  type Table,
} from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { defaultPageItems } from '../domain/page-limits.ts'
import { defaultSourceName } from '../domain/source.ts'
import { readWithin } from './deadline.ts'
import { InvalidFilterError, type Paging } from './filters.ts'

/** One page of a list, newest first. */
export type Page<T> = { data: T[]; next_cursor: string | null }

export function pageSchema<T extends z.ZodType>(item: T) {
  return z.object({
    data: z.array(item),
    next_cursor: z.string().nullable().describe('The cursor of the next page; null on the last.'),
  })
}

/** A place in a list: the time, in microseconds as Postgres stores it, and the id of a row. */
export type Place = { micros: string; id: string }

/** The order of a list: by time, then by id. One index has both columns. */
export type Order = { at: Column; id: Column }

/** Orders exactly as the index does: `desc` alone means nulls first, which an index with nulls last does not serve. */
export function newestFirst({ at, id }: Order): SQL {
  return sql`${at} desc nulls last, ${id} desc nulls last`
}

const placePattern = { uuid: /^(\d{1,16})\.([0-9a-f-]{36})$/, bigint: /^(\d{1,16})\.(\d{1,18})$/ } as const

/** Lists cut longer URLs, so that a page of 200 stays below a megabyte. Signed links fit. */
export const maxUrlCharacters = 4096

/** Encodes a place as a cursor. Its content is opaque to callers and may change. */
export function encodeCursor({ micros, id }: Place): string {
  return Buffer.from(`${micros}.${id}`).toString('base64url')
}

const ofList = ['cursor', 'is not a next_cursor of this list'] as const

/** Decodes a cursor. Throws InvalidFilterError with these words for one that was not made here. */
export function decodeCursor(
  cursor: string,
  idType: keyof typeof placePattern,
  words: readonly [string, string] = ofList,
) {
  const [, micros, id] = placePattern[idType].exec(Buffer.from(cursor, 'base64url').toString('latin1')) ?? []
  const known = micros !== undefined && id !== undefined && (idType === 'bigint' || z.guid().safeParse(id).success)
  if (!known) throw new InvalidFilterError(...words)
  return { micros, id } satisfies Place
}

export function instantOf(micros: string): SQL {
  return sql`(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`
}

/** SQL: the time of a row for a cursor. A JavaScript date would lose the microseconds. */
export function microsOf(at: Column | SQL): SQL<string> {
  return sql<string>`(extract(epoch from ${at}) * 1000000)::bigint::text`
}

/** SQL: the name of a source as readers see it. Columns hold null for the default source. */
export function sourceNameOf(stored: Column | SQL | StringChunk): SQL<string> {
  return sql<string>`coalesce(${stored}, ${defaultSourceName})`
}

/** SQL condition: rows after the cursor. New rows on top do not change it. */
export function afterCursor(cursor: string | undefined, { at, id }: Order): SQL | undefined {
  if (cursor === undefined) return undefined
  const idType = id.getSQLType() === 'uuid' ? 'uuid' : 'bigint'
  const place = decodeCursor(cursor, idType)
  const time = instantOf(place.micros)
  // The first condition repeats the second for one column, so that Postgres can exclude partitions.
  return sql`${at} <= ${time} and (${at}, ${id}) < (${time}, ${place.id}::${sql.raw(idType)})`
}

/** Returns one row more than the page has, which shows whether there is a next page. */
export function limitOf({ limit = defaultPageItems }: Paging): number {
  return limit + 1
}

/**
 * Makes a page of rows. `cut` of the last row means that the query left out rows that did not fit into the page. A row
 * with `matched` false is only the place where the next page begins.
 */
export function toPage<R extends { micros: string; id: string | number; matched?: boolean; cut?: boolean }, T>(
  rows: readonly R[],
  { limit = defaultPageItems }: Paging,
  toItem: (row: R) => T,
): Page<T> {
  const shown = rows.slice(0, limit)
  const last = rows.length > limit || rows.at(-1)?.cut === true ? shown.at(-1) : undefined
  return {
    data: shown.filter(({ matched }) => matched !== false).map(toItem),
    next_cursor: last ? encodeCursor({ micros: last.micros, id: String(last.id) }) : null,
  }
}

/** A statement of the builder that is neither ordered nor limited yet. */
type Unordered<R> = { orderBy: (order: SQL) => { limit: (rows: number) => PromiseLike<R[]> } }

type List<R, T> = {
  order: Order
  matching: SQL | undefined
  /** Selects the rows, with `micros`. `where` adds the times and the cursor to `matching`. */
  select: (tx: Executor, where: SQL | undefined) => Unordered<R>
  toItem: (row: Omit<R, 'micros'>) => T
}

/** Reads a page of a list within the deadline. */
export async function readPage<R extends { micros: string; id: number }, T>(
  db: Database,
  { limit, cursor, ...range }: Paging & Range,
  { order, matching, select, toItem }: List<R, T>,
): Promise<Page<T>> {
  const where = and(matching, within(order.at, range), afterCursor(cursor, order))
  const rows = await readWithin(db, async (tx) =>
    select(tx, where).orderBy(newestFirst(order)).limit(limitOf({ limit })),
  )
  return toPage(rows, { limit }, ({ micros: _micros, ...row }) => toItem(row))
}

export type Range = { since?: string | undefined; until?: string | undefined }

export function within(at: Column, { since, until }: Range): SQL | undefined {
  return and(since === undefined ? undefined : gte(at, since), until === undefined ? undefined : lt(at, until))
}

/** SQL condition for an optional filter. */
export function given<V>(value: V | undefined, condition: (value: V) => SQL | undefined): SQL | undefined {
  return value === undefined ? undefined : condition(value)
}

export function equals<C extends Column>(column: C, value: C['_']['data'] | undefined): SQL | undefined {
  return given(value, (wanted) => eq(column, wanted))
}

type Wanted<T extends Table> = { [Name in keyof T['$inferSelect']]?: T['$inferSelect'][Name] | undefined }

/** SQL condition: the columns have the wanted values, where one is wanted. Other members are no condition. */
export function matches<T extends Table>(table: T, wanted: Wanted<T>): SQL | undefined {
  const columns = getTableColumns<Table>(table)
  return and(...Object.entries(wanted).map(([name, value]) => columns[name] && equals(columns[name], value)))
}

/** Converts a time of Postgres to ISO 8601. Null stays null, and so does `infinity`, which no date can express. */
export function iso(text: string | null): string | null {
  return text === null || text.endsWith('infinity') ? null : new Date(text).toISOString()
}

/** Converts the times with these names like iso(). */
export function withIso<Name extends string, Row extends Record<Name, string | null>>(row: Row, ...names: Name[]): Row {
  return { ...row, ...Object.fromEntries(names.map((name) => [name, iso(row[name])])) }
}
