import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { tryRead } from './failures.ts'
import { filterBar, type FilterBar } from './filter-bar.ts'
import { pager } from './parts.ts'
import type { ConsoleDeps } from './shell.ts'

type Read = { listed: { next_cursor: string | null } }
type Bar = Omit<FilterBar, 'now' | 'problem'>
type ListView<T> = { status: number; body: Markup; value: T | undefined }

/**
 * A list below its filters, with links to its pages. Without the list, the reason why it cannot be read. The filters may
 * depend on what was read.
 */
export async function listView<T extends Read>(
  { logger, clock }: ConsoleDeps,
  bar: Bar | ((value: T | undefined) => Bar),
  read: () => Promise<T>,
  shown: (value: T) => Markup,
): Promise<ListView<T>> {
  const attempt = await tryRead(logger, read)
  const { status } = attempt
  const value = attempt.ok ? attempt.value : undefined
  const given = typeof bar === 'function' ? bar(value) : bar
  const now = clock()
  const filters = filterBar({ ...given, now, problem: attempt.ok ? undefined : attempt.problem })
  if (value === undefined) return { status, value, body: filters }
  const pages = pager(given.path, given.query, value.listed.next_cursor)
  return { status, value, body: html`${filters} ${shown(value)} ${pages}` }
}
