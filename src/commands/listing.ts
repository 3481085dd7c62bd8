import type { z } from 'zod'
import type { Database } from '../platform/postgres/postgres.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import { maxPageItems } from '../receiver/domain/page-limits.ts'
import { ago, InvalidFilterError, parseFilters, type Paging } from '../receiver/queries/filters.ts'
import type { Page } from '../receiver/queries/page.ts'
import { withReceiverDatabase } from './database.ts'
import { type Command, defineCommand, printJson, printTable, toOption, UsageError } from './usage.ts'

type Cell = string | number | null
export type TableColumns<T> = Readonly<Record<string, (item: T) => Cell>>

export type Listing<S extends z.ZodObject, T> = {
  help: string
  /** The filters of the API's list. Each becomes an option of the same name, with dashes. */
  filters: S
  list: (db: Database, query: z.infer<S> & Paging, env: ProcessEnvironment) => Promise<Page<T>>
  columns: TableColumns<T>
}

/** Creates a command that prints a list of the API as a table, or as one JSON line per item. */
export function listCommand<S extends z.ZodObject, T>({ help, filters, list, columns }: Listing<S, T>): Command {
  return defineCommand({
    help,
    options: { ...optionsOf(filters), limit: { type: 'string' }, json: { type: 'boolean' } },
    run: async ({ json, limit, ...given }, _words, env) => {
      const wanted = limit === undefined ? 50 : Number(limit)
      if (!Number.isInteger(wanted) || wanted < 1) throw new UsageError('--limit: must be a whole number above 0')
      const query = filtersOf(filters, given)
      return withReceiverDatabase(env, async (db) => {
        const items = await collect(wanted, (paging) => list(db, { ...query, ...paging }, env))
        return printItems(items, columns, json)
      })
    },
  })
}

/** Prints items as a table, or as one JSON line each. Returns the exit code. */
export function printItems<T>(items: readonly T[], columns: TableColumns<T>, json: boolean | undefined): number {
  if (json) items.forEach(printJson)
  else
    printTable(
      Object.keys(columns),
      items.map((item) => Object.values(columns).map((column) => cell(column(item)))),
    )
  return 0
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

/** The options of these filters, in the form of `parseArgs`. */
export function optionsOf({ shape }: z.ZodObject): Record<string, { type: 'string' }> {
  return Object.fromEntries(Object.keys(shape).map((name) => [toOption(name), { type: 'string' }]))
}

type Options = Readonly<Record<string, string | boolean | undefined>>

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

/** Replaces control characters, so that foreign text in a table cannot steer the terminal. */
export function cell(value: Cell): string {
  return value === null ? '-' : String(value).replaceAll(/\p{C}/gu, '·')
}
