import { z } from 'zod'
import { and, type Column, eq, gte, lt, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { defaultLimit, InvalidFilterError, type Paging } from './filters.ts'

/** One page of a list, newest first. */
export type Page<T> = { data: T[]; next_cursor: string | null }

export function pageSchema<T extends z.ZodType>(item: T) {
  return z.object({
    data: z.array(item),
    next_cursor: z.string().nullable().meta({ description: 'Asks for the next page; null on the last.' }),
  })
}

/** Where a list goes on: after this time (in microseconds, as Postgres keeps it) and this id. */
export type Place = { micros: string; id: string }

/** The order of a list: by time and, within one, by id. Both are columns of one index. */
export type Order = { at: Column; id: Column }

/** Word for word as in the index: `desc` alone means nulls first, which an index with nulls last does not serve. */
export function newestFirst({ at, id }: Order): SQL {
  return sql`${at} desc nulls last, ${id} desc nulls last`
}

const placePattern = { uuid: /^(\d{1,16})\.([0-9a-f-]{36})$/, bigint: /^(\d{1,16})\.(\d{1,18})$/ } as const

/** A longer one is cut where it stands among others; no browser follows it. */
export const maxUrlLength = 4096

/** A page has no more besides its first item: fewer items than wanted then, and a cursor that goes on. */
export const maxPageBytes = 2 * 1024 * 1024

/** Opaque to callers, and never a promise of what stands in it. */
export function encodeCursor({ micros, id }: Place): string {
  return Buffer.from(`${micros}.${id}`).toString('base64url')
}

/** The place that a cursor names; throws InvalidFilterError for anything that we did not make. */
export function decodeCursor(cursor: string, idType: keyof typeof placePattern): Place {
  const [, micros, id] = placePattern[idType].exec(Buffer.from(cursor, 'base64url').toString('latin1')) ?? []
  const known = micros !== undefined && id !== undefined && (idType === 'bigint' || z.guid().safeParse(id).success)
  if (!known) throw new InvalidFilterError('cursor', 'is not a next_cursor of this list')
  return { micros, id }
}

export function instantOf(micros: string): SQL {
  return sql`(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`
}

/** The time of a row as a cursor needs it; a JavaScript date would lose the microseconds. */
export function microsOf(at: Column | SQL): SQL<string> {
  return sql<string>`(extract(epoch from ${at}) * 1000000)::bigint::text`
}

/** What comes after the cursor; it stays the same however many new rows come on top. */
export function afterCursor(cursor: string | undefined, { at, id }: Order): SQL | undefined {
  if (cursor === undefined) return undefined
  const idType = id.getSQLType() === 'uuid' ? 'uuid' : 'bigint'
  const place = decodeCursor(cursor, idType)
  const time = instantOf(place.micros)
  // The first half repeats the condition for one column: Postgres chooses partitions by it.
  return sql`${at} <= ${time} and (${at}, ${id}) < (${time}, ${place.id}::${sql.raw(idType)})`
}

/** One row more than wanted shows whether there is a next page. */
export function limitOf({ limit = defaultLimit }: Paging): number {
  return limit + 1
}

/** With `cut` the query left out what did not fit into the page. */
export function toPage<R extends { micros: string; id: string | number; cut?: boolean }, T>(
  rows: readonly R[],
  { limit = defaultLimit }: Paging,
  toItem: (row: R) => T,
): Page<T> {
  const shown = rows.slice(0, limit)
  const last = rows.length > limit || rows[0]?.cut === true ? shown.at(-1) : undefined
  return {
    data: shown.map(toItem),
    next_cursor: last ? encodeCursor({ micros: last.micros, id: String(last.id) }) : null,
  }
}

type Range = { since?: string | undefined; until?: string | undefined }

export function within(at: Column, { since, until }: Range): SQL | undefined {
  return and(since === undefined ? undefined : gte(at, since), until === undefined ? undefined : lt(at, until))
}

/** A filter that may be missing. */
export function equals<C extends Column>(column: C, value: C['_']['data'] | undefined): SQL | undefined {
  return value === undefined ? undefined : eq(column, value)
}

/** A time of Postgres as JSON has it; null stays null, and so does `infinity`, which no date can say. */
export function iso(text: string | null): string | null {
  return text === null || text.endsWith('infinity') ? null : new Date(text).toISOString()
}

/** For columns that are never null. */
export function isoAlways(text: string): string {
  return new Date(text).toISOString()
}
