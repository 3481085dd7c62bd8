import { sql, type SQL } from '../../platform/postgres/drizzle.ts'

// Limits of what others put into a row. CHECK constraints of the tables hold them, whoever writes.

/** Of `model`, `key_name`, `error_code` and webhook ids. Indexes of names take 2,704 bytes at most. */
export const maxNameCharacters = 255
export const maxErrorMessageCharacters = 4000
/** As text: the most that a body of our own API has, and far less than services take that are posted it. */
const maxMetadataBytes = 1024 * 1024
/** As stored: many small numbers take six times as much as their text. */
const maxStoredMetadataBytes = 8 * 1024 * 1024
/** Postgres and V8 write JSON by recursion: some 5,000 levels overflow their stacks. */
export const maxNesting = 200

/** The text, cut to so many characters where it is longer. It stays well-formed, as Postgres demands. */
export function cutTo(text: string, maxCharacters: number): string {
  return text.length <= maxCharacters ? text : `${text.slice(0, maxCharacters - 1).toWellFormed()}…`
}

/** Whether each of these columns has at most `maxNameCharacters`. */
export function areNames(...columns: readonly string[]): SQL {
  return sql.raw(columns.map((column) => `char_length(${column}) <= ${maxNameCharacters}`).join(' and '))
}

/** Times whose year has four digits in any time zone: JavaScript reads others otherwise than Postgres writes them, or not at all. */
const times = ["'1000-01-01 00:00:00+00'", "'9999-01-01 00:00:00+00'"] as const
const [earliestMs, endMs] = [Date.parse('1000-01-01T00:00:00Z'), Date.parse('9999-01-01T00:00:00Z')]

/** Whether each of these columns, where it has a time, has one of the years 1000 to 9998. */
export function areTimes(...columns: readonly string[]): SQL {
  const [earliest, end] = times
  return sql.raw(columns.map((column) => `${column} >= ${earliest} and ${column} < ${end}`).join(' and '))
}

/** The same of a text that says a time. */
export function isTime(text: string): boolean {
  const ms = Date.parse(text)
  return ms >= earliestMs && ms < endMs
}

export const isErrorMessage = sql.raw(`char_length(error_message) <= ${maxErrorMessageCharacters}`)

/** The size as stored is compared first: a number such as 1e100000 takes a few bytes there, and 100,001 as text. */
export const isMetadataSmall = sql.raw(
  `pg_column_size(metadata) <= ${maxStoredMetadataBytes} and octet_length(metadata::text) <= ${maxMetadataBytes}`,
)

/** jsonpath goes down to that level and no further, so it is safe on any depth. */
export const isMetadataShallow = sql.raw(`not jsonb_path_exists(metadata, '$.**{${maxNesting}}')`)
