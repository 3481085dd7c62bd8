import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { defaultSourceName } from './source.ts'

// Limits of values that callers and the provider supply. CHECK constraints enforce them for every writer. Those of
// metadata are in the SQL function `check_metadata`: a CHECK would read all metadata at every update of the row.

/** For `model`, `key_name`, `error_code` and webhook ids. An index entry holds at most 2,704 bytes. */
export const maxNameCharacters = 255
/** For names of sources, which are parts of paths: as long as a label of a host name. */
export const maxSourceNameCharacters = 63
/** Landing cuts longer messages, so that a page of 200 errors stays below a megabyte. */
export const maxErrorMessageCharacters = 4000
/** Postgres and V8 write JSON recursively; about 5,000 levels overflow their stacks. */
export const maxNesting = 200

/** Cuts the text to `maxCharacters`. A cut text is well-formed, as Postgres requires. */
export function cutTo(text: string, maxCharacters: number): string {
  return text.length <= maxCharacters ? text : `${text.slice(0, maxCharacters - 1).toWellFormed()}…`
}

/** SQL condition: each of these columns has at most `maxNameCharacters`. */
export function areNames(...columns: readonly string[]): SQL {
  return sql.raw(columns.map((column) => `char_length(${column}) <= ${maxNameCharacters}`).join(' and '))
}

/** Bounds of times with a four-digit year in every time zone. JavaScript parses others differently, or not at all. */
const times = ["'1000-01-01 00:00:00+00'", "'9999-01-01 00:00:00+00'"] as const
const [earliestMs, endMs] = [Date.parse('1000-01-01T00:00:00Z'), Date.parse('9999-01-01T00:00:00Z')]

/** SQL condition: each of these columns is null or lies in the years 1000 to 9998. */
export function areTimes(...columns: readonly string[]): SQL {
  const [earliest, end] = times
  return sql.raw(columns.map((column) => `${column} >= ${earliest} and ${column} < ${end}`).join(' and '))
}

/** Returns true if the text is a time in the years 1000 to 9998. */
export function isTime(text: string): boolean {
  const ms = Date.parse(text)
  return ms >= earliestMs && ms < endMs
}

/** SQL condition: the columns of a source are null, as for the default source, or name another source and its job. */
export const isOtherSource = sql.raw(
  [
    `source_name <> '${defaultSourceName}'`,
    `char_length(source_name) <= ${maxSourceNameCharacters}`,
    `char_length(external_id) <= ${maxNameCharacters}`,
  ].join(' and '),
)

export const isErrorMessage = sql.raw(`char_length(error_message) <= ${maxErrorMessageCharacters}`)

/** The highest count that a page shows. Each view counts again, and there may be millions of rows. */
export const maxCounted = 10_000

/** The range of a column of type integer. */
export const maxInteger = 2_147_483_647
