import type { Express, Request } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { control, type Field, linkTo, type Markup, pageLinks, type Query } from '../../platform/pages/parts.ts'
import { plainWords } from '../../platform/plain-words.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import type { Show } from './parts.ts'
import type { NewestPage } from './reads.ts'

/** Any text of a form field. A field that was left empty is no filter. */
export const textSchema = z
  .string('must be given once')
  .trim()
  .max(100, 'must have at most 100 characters')
  .transform((text) => text || undefined)
  .optional()

/** One of several choices. */
export function choiceOf<const T extends string>(choices: readonly T[]) {
  return z
    .enum([...choices, ''], `must be one of ${choices.join(', ')}, or empty`)
    .transform((text) => choices.find((choice) => choice === text))
    .optional()
}

/** Where a page of a list ended: microseconds since 1970 and an id. */
export const cursorSchema = z
  .string()
  .regex(/^\d{1,16}_[0-9a-f-]{36}$/)
  .transform((text) => ({ atUs: text.split('_')[0] ?? '', id: text.split('_')[1] ?? '' }))
  .refine(({ id }) => requestIdSchema.safeParse(id).success)
  .optional()
  .catch((): never => {
    const message = 'this link to a page is not valid: start with the newest rows and follow Older'
    throw new HttpError(400, 'invalid_filter', message)
  })

/** Reads the filters of a page's address. Throws HttpError 400 for a wrong filter instead of ignoring it. */
export function filtersIn<T extends z.ZodType>(req: Request, schema: T): z.infer<T> {
  const parsed = schema.safeParse(req.query, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const message = `the filter ${issue?.path.join('.') ?? ''} ${issue?.message ?? 'is not valid'}`
  throw new HttpError(400, 'invalid_filter', message)
}

/** The parameters of every list: an account, an id to find, and the end of the previous page. */
const everyList = z.object({ account: textSchema, q: textSchema, before: cursorSchema })

type Place = Omit<z.infer<typeof everyList>, 'q'>

/** A list with filters. `W` are those that only this list has. */
export type List<W extends Query, Row> = {
  path: string
  heading: string
  schema: z.ZodType<W>
  /** The fields beside the account. */
  fields: () => readonly Field[]
  /** The kinds of ids that `find` searches. */
  ids: string
  find: (id: string) => Promise<Row[]>
  read: (wanted: W & Place) => Promise<NewestPage<Row>>
  /** The sentence for a list without any row. */
  nothing: string
  table: (rows: readonly Row[], empty: string) => Markup
}

/** Shows a list: a form for its filters, a search by id, and pages of rows, newest first. */
export function showList<W extends Query, Row>(app: Express, show: Show, list: List<W, Row>): void {
  const { path, heading, schema, ids, table } = list
  app.get(path, async (req, res) => {
    const { account, before, q } = filtersIn(req, everyList)
    const own = filtersIn(req, schema)
    const fields = [{ name: 'account', label: 'Account' }, ...list.fields()]
    const filters = { ...own, account }
    const id = requestIdSchema.safeParse(q)
    const search = async () => ({ rows: id.success ? await list.find(id.data) : [], older: undefined })
    const { rows, older } = q ? await search() : await list.read({ ...own, account, before })
    const none =
      q && !id.success
        ? `${q} is not a whole ${ids}. Each is a UUID.`
        : older
          ? 'No match among the rows that were searched. Follow Older to continue the search.'
          : list.nothing
    const page = html`<h1>${heading}</h1>
      <form class="filters" method="get" action="${path}">
        <div class="fields">${fields.map((field) => control(field, filters))}<button>Show</button></div>
      </form>
      <form class="filters" method="get" action="${path}" role="search">
        <div class="fields">${control({ name: 'q', label: `${ids.slice(0, 1).toUpperCase()}${ids.slice(1)}`, search: true }, { q })}<button class="quiet">Find</button></div>
      </form>
      <section class="card">
        ${table(rows, none)} ${listPages(path, filters, { isFirst: before === undefined, older })}
      </section>`
    show(req, res, heading, page)
  })
}

/** Links to the next page of a list and back to the first, with the same filters. */
export function listPages(
  path: string,
  filters: Query,
  { isFirst, older }: { isFirst: boolean; older: string | undefined },
): Markup {
  return pageLinks({
    newest: isFirst ? undefined : linkTo(path, filters),
    older: older && linkTo(path, { ...filters, before: older }),
  })
}
