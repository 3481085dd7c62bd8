import type { Request, Response } from 'express'
import { z } from 'zod'
import { statementRows } from '../../platform/postgres/at-most.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { ReceiverDeps } from '../program.ts'
import { arrivalSchema, listArrivals } from '../queries/arrivals.ts'
import { deliverySchema, listDeliveries } from '../queries/deliveries.ts'
import { arrivalFiltersSchema, deliveryFiltersSchema, parseFilters, type Paging } from '../queries/filters.ts'
import type { Page } from '../queries/page.ts'
import { boundCalls, writeTo } from './event-stream.ts'
import { gone, type Operation } from './operation.ts'

/** Per process: each export takes a connection during its queries. */
const bounded = boundCalls(4, 'exports are running')

const formats = { ndjson: 'application/x-ndjson', csv: 'text/csv' } as const
type Format = keyof typeof formats

type Item = Record<string, unknown>
type Exportable = {
  filters: z.ZodObject
  columns: readonly string[]
  list: (db: Database, query: Item, paging: Paging) => Promise<Page<Item>>
}

const exportable = {
  deliveries: {
    filters: deliveryFiltersSchema,
    columns: Object.keys(deliverySchema.shape),
    list: (db, query, paging) => listDeliveries(db, { ...query, ...paging }),
  },
  arrivals: {
    filters: arrivalFiltersSchema,
    columns: Object.keys(arrivalSchema.shape),
    list: (db, query, paging) => listArrivals(db, { ...query, ...paging }),
  },
} satisfies Record<string, Exportable>

export type Exported = { what: keyof typeof exportable; format: Format }

/** Every exportable list in every format. */
export const exportedFiles: readonly Exported[] = (['deliveries', 'arrivals'] as const).flatMap((what) =>
  (['ndjson', 'csv'] as const).map((format) => ({ what, format })),
)

/**
 * Sends all rows that match the filters, newest first, page by page with the list's cursor, so new rows shift nothing.
 * It ends if the client disconnects. A failure cuts the connection, so that a partial file does not look complete.
 */
export async function sendExport(
  deps: ReceiverDeps,
  { what, format }: Exported,
  { req, res, query }: { req: Request; res: Response; query: unknown },
): Promise<void> {
  const { filters, columns, list }: Exportable = exportable[what]
  const wanted = parseFilters(filters, query)
  const stop = AbortSignal.any([deps.signal, gone(res)])
  const read = (cursor?: string) => deps.lists((db) => list(db, wanted, { limit: statementRows, cursor }))
  const lineOf = (item: Item) => (format === 'csv' ? csvLine(item, columns) : `${JSON.stringify(item)}\n`)
  await bounded(async () => {
    const { listed, asOf } = await read()
    if (asOf !== undefined) res.set('x-mediadock-as-of', asOf.toISOString())
    res.set({
      'content-type': `${formats[format]}; charset=utf-8`,
      'content-disposition': `attachment; filename="${what}-${fileTime(deps.clock())}.${format}"`,
    })
    if (format === 'csv') res.write(`${columns.join(',')}\r\n`)
    let page = listed
    try {
      for (;;) {
        const lines = page.data.map(lineOf).join('')
        if (lines !== '') await writeTo(res, lines, { signal: stop })
        if (page.next_cursor === null) return void res.end()
        stop.throwIfAborted()
        page = (await read(page.next_cursor)).listed
      }
    } catch (error) {
      if (!stop.aborted) deps.logger.error({ err: error, path: req.path }, 'an export failed before its end')
      res.destroy()
    }
  })
}

/** The export calls of the API. */
export function exportOperations(deps: ReceiverDeps): Operation[] {
  return exportedFiles.map((exported): Operation => {
    const { what, format } = exported
    return {
      method: 'get',
      path: `/${what}.${format}`,
      operationId: `export${what === 'deliveries' ? 'Deliveries' : 'Arrivals'}As${format === 'csv' ? 'Csv' : 'Ndjson'}`,
      summary: `All ${what} that match the filters, newest first, as a file`,
      description:
        format === 'csv'
          ? 'Text that a spreadsheet would run as a formula is prefixed with an apostrophe.'
          : 'One JSON object per line.',
      requestParams: { query: exportable[what].filters },
      answers: { 200: { description: 'The file', schema: z.string(), type: formats[format] } },
      errors: ['invalid_filter', 'too_many_waiting'],
      answer: (req, res) => sendExport(deps, exported, { req, res, query: req.query }),
    }
  })
}

function fileTime(now: Date): string {
  return now.toISOString().slice(0, 19).replaceAll(/[-:]/g, '')
}

function csvLine(item: Item, columns: readonly string[]): string {
  return `${columns.map((column) => csvCell(item[column])).join(',')}\r\n`
}

// The beginning of a formula. Spreadsheets that split cells at semicolons or tabs find one inside our cells, too.
const formula = /(^|[;\t\r\n])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])|(^)(?=[\t\r\n])/g

function csvCell(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const text = Array.isArray(value) ? value.join(' ') : typeof value === 'string' ? value : JSON.stringify(value)
  const inert = text.replaceAll(formula, "$1'")
  return /[",;\t\r\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert
}
