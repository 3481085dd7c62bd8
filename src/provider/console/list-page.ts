import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { pageLinks, tabs } from '../../platform/pages/parts.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import type { NewestPage } from './newest-first.ts'

/** `none` is the sentence for an empty list. */
export type Found<Row> = { rows: Row[]; older: string | undefined; none: string }

/** The rows of a filter. `nothing` is the sentence for a list without any row. */
export function foundByFilter<Row>(page: NewestPage<Row>, account: string | undefined, nothing: string): Found<Row> {
  const none = page.older
    ? 'No match among the rows that were searched. Follow Older to continue the search.'
    : page.isAccountKnown
      ? nothing
      : `There is no account ${account}.`
  return { rows: page.rows, older: page.older && `${page.older.atUs}_${page.older.id}`, none }
}

/** Finds the rows with the id `q`. `ids` names the kinds of ids that `find` searches, for the answer to a wrong id. */
export async function foundById<Row>(
  q: string,
  find: (id: string) => Promise<Row[]>,
  { ids, nothing }: { ids: string; nothing: string },
): Promise<Found<Row>> {
  const id = requestIdSchema.safeParse(q)
  if (!id.success) return { rows: [], older: undefined, none: `${q} is not a whole ${ids}. Each is a UUID.` }
  return { rows: await find(id.data), older: undefined, none: nothing }
}

export function idForm(path: string, label: string, q = ''): Markup {
  return html`<form class="inline" method="get" action="${path}" role="search">
    <label>${label} <input class="uuid" name="q" value="${q}" spellcheck="false" autocomplete="off" /></label>
    <label><button class="quiet">Find</button></label>
  </form>`
}

type Filters = Readonly<Record<string, string | undefined>>
type Views = { path: string; name: string; choices: readonly string[]; filters: Filters }

/** The states of a list as tabs. They keep the other filters. */
export function views({ path, name, choices, filters }: Views): Markup {
  const tab = (choice: string | undefined) => {
    const label = choice === undefined ? 'All' : choice.slice(0, 1).toUpperCase() + choice.slice(1).toLowerCase()
    const href = linkTo(path, { ...filters, [name]: choice })
    return { label: label.replace('_', ' '), href, current: filters[name] === choice }
  }
  return tabs(`By ${name}`, [undefined, ...choices].map(tab))
}

type Place = { isFirst: boolean; older: string | undefined }

/** Links to the next page of a list and back to the first, with the same filters. */
export function listPages(path: string, filters: Filters, { isFirst, older }: Place): Markup {
  return pageLinks({
    newest: isFirst ? undefined : linkTo(path, filters),
    older: older && linkTo(path, { ...filters, before: older }),
  })
}

export function linkTo(path: string, filters: Filters): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value)
  return `${path}?${query.toString()}`
}
