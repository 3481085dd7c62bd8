import { parseArgs } from 'node:util'
import type { z } from 'zod'
import { createPool, type Database } from '../platform/postgres/postgres.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import { maxPageItems } from '../receiver/domain/page-limits.ts'
import { ago, InvalidFilterError, parseFilters, type Paging } from '../receiver/queries/filters.ts'
import type { Page } from '../receiver/queries/page.ts'
import { withDatabase } from './database.ts'
import { printTable } from './terminal.ts'
import { printJson, UsageError, type Command, type CommandOptions } from './usage.ts'

export type Listing<S extends z.ZodObject, T> = {
  help: string
  /** The filters of the API's list. Each becomes an option of the same name, with dashes. */
  filters: S
  list: (db: Database, query: z.infer<S> & Paging, env: ProcessEnvironment) => Promise<Page<T>>
  headings: readonly string[]
  row: (item: T) => readonly (string | number | null)[]
}

const switches = ['json']
const valued = ['limit']

/** Creates a command that prints a list of the API as a table, or as one JSON line per item. */
export function listCommand<S extends z.ZodObject, T>({ help, filters, list, headings, row }: Listing<S, T>): Command {
  return {
    help,
    options: optionsOf({ filters, switches, valued }),
    run: async (args, env) => {
      const { words, options } = readWords(args, { filters, switches, valued })
      if (words.length > 0) throw new UsageError(`"${cell(words[0] ?? '')}" is not an option: --help lists the options`)
      const { json, limit, ...given } = options
      const wanted = limit === undefined ? 50 : Number(limit)
      if (!Number.isInteger(wanted) || wanted < 1) throw new UsageError('--limit: must be a whole number above 0')
      const query = filtersOf(filters, given)
      return withDatabase(env, 'receiver', async (url) => {
        const items = await withPool(url, (db) => collect(wanted, (paging) => list(db, { ...query, ...paging }, env)))
        if (json) items.forEach(printJson)
        else
          printTable(
            headings,
            items.map((item) => row(item).map(cell)),
          )
        return 0
      })
    },
  }
}

/** Calls `work` with a connection pool, then closes the pool. */
export async function withPool<T>(url: string, work: (db: Database) => Promise<T>): Promise<T> {
  const pool = createPool({ url, max: 2 })
  try {
    return await work(pool.db)
  } finally {
    await pool.close()
  }
}

async function collect<T>(wanted: number, list: (paging: Paging) => Promise<Page<T>>): Promise<T[]> {
  const items: T[] = []
  let cursor: string | undefined
  do {
    const page = await list({ limit: Math.min(maxPageItems, wanted - items.length), cursor })
    items.push(...page.data)
    cursor = page.next_cursor ?? undefined
  } while (cursor !== undefined && items.length < wanted)
  return items
}

export type Options = Record<string, string | true | undefined>

export type Accepted = { filters: z.ZodObject; switches: readonly string[]; valued?: readonly string[] }

/** The options of a command: one per filter, and `switches` and `valued`. */
export function optionsOf({ filters, switches, valued = [] }: Accepted): CommandOptions {
  return Object.fromEntries([
    ...[...Object.keys(filters.shape).map(toOption), ...valued].map(
      (name) => [name, { type: 'string' as const }] as const,
    ),
    ...switches.map((name) => [name, { type: 'boolean' as const }] as const),
  ])
}

/** Splits arguments into words and options. Reads `--request_id` like `--request-id`. */
export function readWords(args: readonly string[], accepted: Accepted): { words: string[]; options: Options } {
  const { values, positionals } = parseArgs({
    args: args.map((arg) => arg.replace(/^--[\w-]+/, toOption)),
    allowPositionals: true,
    options: optionsOf(accepted),
  })
  const options = Object.entries(values).map(([name, value]) => [name, value === true ? true : String(value)])
  return { words: positionals, options: Object.fromEntries(options) }
}

/** Parses the options as the API parses its query. Throws UsageError for an invalid one. */
export function filtersOf<S extends z.ZodObject>(schema: S, given: Options): z.infer<S> {
  const query = Object.fromEntries(
    Object.entries(given).map(([option, value]) => {
      const name = option.replaceAll('-', '_')
      return [name, (name === 'since' || name === 'until') && typeof value === 'string' ? ago(value) : value]
    }),
  )
  try {
    return parseFilters(schema, query)
  } catch (error) {
    if (error instanceof InvalidFilterError) throw new UsageError(`--${toOption(error.message)}`)
    throw error
  }
}

/** Converts the name of a filter at the start of `text` to its form as an option, with dashes. */
function toOption(text: string): string {
  return text.replace(/^[\w-]+/, (name) => name.replaceAll('_', '-'))
}

/** Replaces control characters, so that foreign text in a table cannot steer the terminal. */
export function cell(value: string | number | null): string {
  return value === null ? '-' : String(value).replaceAll(/\p{C}/gu, '·')
}
