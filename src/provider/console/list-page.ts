import type { Express } from 'express'
import { html } from 'hono/html'
import type { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import { pageLinks } from '../../platform/pages/parts.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import { capital, filtersIn } from './filter-fields.ts'
import type { NewestPage } from './newest-first.ts'
import type { Show } from './parts.ts'

type Wanted = { q?: string | undefined; account?: string | undefined; before?: unknown }

/** A list with filters. `W` is the parsed query of its address. */
export type List<W extends Wanted, Row> = {
  path: string
  heading: string
  schema: z.ZodType<W>
  /** The other fields of the form, beside the account. */
  fields: (wanted: W) => Markup
  /** The kinds of ids that `find` searches. */
  ids: string
  find: (id: string) => Promise<Row[]>
  read: (wanted: W) => Promise<NewestPage<Row>>
  /** The sentence for a list without any row. */
  nothing: string
  table: (rows: readonly Row[], empty: string) => Markup
}

/** Shows a list: a form for its filters, a search by id, and pages of rows, newest first. */
export function showList<W extends Wanted, Row>(app: Express, show: Show, list: List<W, Row>): void {
  const { path, heading, schema, fields, ids, table } = list
  app.get(path, async (req, res) => {
    const wanted = filtersIn(req, schema)
    const { before, q = '', ...filters } = wanted
    const { rows, older, none } = await search(wanted, list)
    const page = html`<h1>${heading}</h1>
      <form class="inline" method="get" action="${path}">
        <label>Account <input name="account" value="${wanted.account}" /></label>
        ${fields(wanted)}
        <label><button>Show</button></label>
      </form>
      <form class="inline" method="get" action="${path}" role="search">
        <label>
          ${capital(ids)} <input class="uuid" name="q" value="${q}" spellcheck="false" autocomplete="off" />
        </label>
        <label><button class="quiet">Find</button></label>
      </form>
      <section class="card">
        ${table(rows, none)} ${listPages(path, filters, { isFirst: before === undefined, older })}
      </section>`
    show(req, res, heading, page)
  })
}

/** Finds the rows with the id `q`; without one, reads the rows of the filters. `none` is the sentence for no row. */
async function search<W extends Wanted, Row>(wanted: W, { ids, nothing, find, read }: List<W, Row>) {
  const { q } = wanted
  if (q) {
    const id = requestIdSchema.safeParse(q)
    const none = id.success ? nothing : `${q} is not a whole ${ids}. Each is a UUID.`
    return { rows: id.success ? await find(id.data) : [], older: undefined, none }
  }
  const { rows, older } = await read(wanted)
  const none = older ? 'No match among the rows that were searched. Follow Older to continue the search.' : nothing
  return { rows, older, none }
}

type Place = { isFirst: boolean; older: string | undefined }

/** Links to the next page of a list and back to the first, with the same filters. */
export function listPages(path: string, filters: object, { isFirst, older }: Place): Markup {
  return pageLinks({
    newest: isFirst ? undefined : linkTo(path, filters),
    older: older && linkTo(path, { ...filters, before: older }),
  })
}

/** An address with those filters that are given. */
function linkTo(path: string, filters: object): string {
  const given = Object.entries(filters).flatMap(([name, value]) => (value ? [[name, String(value)] as const] : []))
  return `${path}?${new URLSearchParams(Object.fromEntries(given)).toString()}`
}
