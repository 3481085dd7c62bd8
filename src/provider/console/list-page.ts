import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { pageLinks, tabs } from '../../platform/pages/parts.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import type { NewestPage } from './newest-first.ts'

/** `none` is the sentence for an empty list. */
export type Found<Row> = { rows: Row[]; older: string | undefined; none: string }

type Wanted = { q?: string | undefined; account?: string | undefined }
type Search<Row> = {
  /** The kinds of ids that `find` searches, for the answer to a wrong id. */
  ids: string
  /** The sentence for a list without any row. */
  nothing: string
  find: (id: string) => Promise<Row[]>
  read: () => Promise<NewestPage<Row>>
}

/** Finds the rows with the id `q`; without one, reads the rows of the filters. */
export async function search<Row>({ q, account }: Wanted, { ids, nothing, find, read }: Search<Row>) {
  if (q) {
    const id = requestIdSchema.safeParse(q)
    const none = id.success ? nothing : `${q} is not a whole ${ids}. Each is a UUID.`
    return { rows: id.success ? await find(id.data) : [], older: undefined, none }
  }
  const { rows, older, isAccountKnown } = await read()
  const none = older
    ? 'No match among the rows that were searched. Follow Older to continue the search.'
    : isAccountKnown
      ? nothing
      : `There is no account ${account}.`
  return { rows, older, none }
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
