import { z } from 'zod'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
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

/**
 * The order of a list: by time and, within one, by id. Both of one index, and
 * word for word: `desc` alone means nulls first, which an index made with nulls
 * last does not serve, though no column of these has any.
 */
export type Order = { at: SQL; id: SQL; idType: 'uuid' | 'bigint' }

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
export function decodeCursor(cursor: string, idType: Order['idType']): Place {
  const [, micros, id] = placePattern[idType].exec(Buffer.from(cursor, 'base64url').toString('latin1')) ?? []
  const known = micros !== undefined && id !== undefined && (idType === 'bigint' || z.guid().safeParse(id).success)
  if (!known) throw new InvalidFilterError('cursor', 'is not a next_cursor of this list')
  return { micros, id }
}

export function instantOf(micros: string): SQL {
  return sql`(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`
}

/** The time of a row as a cursor needs it; a JavaScript date would lose the microseconds. */
export function microsOf(at: SQL): SQL {
  return sql`(extract(epoch from ${at}) * 1000000)::bigint::text`
}

/** What comes after the cursor; it stays the same however many new rows come on top. */
export function afterCursor(cursor: string | undefined, { at, id, idType }: Order): SQL | undefined {
  if (cursor === undefined) return undefined
  const place = decodeCursor(cursor, idType)
  // The first half says the same for one column: partitions are chosen by it.
  return sql`${at} <= ${instantOf(place.micros)} and (${at}, ${id}) < (${instantOf(place.micros)}, ${place.id}::${sql.raw(idType)})`
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

export function allOf(conditions: readonly (SQL | undefined)[]): SQL {
  const given = conditions.filter((condition) => condition !== undefined)
  return given.length === 0 ? sql`true` : sql.join(given, sql` and `)
}

export function within(
  at: SQL,
  { since, until }: { since?: string | undefined; until?: string | undefined },
): SQL | undefined {
  if (since === undefined && until === undefined) return undefined
  return allOf([
    since === undefined ? undefined : sql`${at} >= ${since}::timestamptz`,
    until === undefined ? undefined : sql`${at} < ${until}::timestamptz`,
  ])
}

/** A time of Postgres as JSON has it; null stays null, and so does `infinity`, which no date can say. */
export function iso(text: string | null): string | null {
  return text === null || text.endsWith('infinity') ? null : new Date(text).toISOString()
}

/** For columns that are never null. */
export function isoAlways(text: string): string {
  return new Date(text).toISOString()
}
