import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { time } from '../../../platform/pages/parts.ts'
import { tryRead } from './failures.ts'
import { filterBar, type FilterBar } from './filter-bar.ts'
import { pager } from './parts.ts'
import type { ConsoleDeps } from './shell.ts'

type Read = { listed: { next_cursor: string | null }; asOf?: Date | undefined }
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
  const pages = html`${pager(given.path, given.query, value.listed.next_cursor)} ${asOfNote(value.asOf, now)}`
  return { status, value, body: html`${filters} ${shown(value)} ${pages}` }
}

/** A receiver writes figures about every 20 s, so a standby without a change for this long is behind. */
const behindAfterMs = 120_000

/** A note below a list that was read from a standby: newer rows may be missing. */
export function asOfNote(asOf: Date | undefined, now: Date): Markup | string {
  if (asOf === undefined) return ''
  const isBehind = now.getTime() - asOf.getTime() > behindAfterMs
  return html`<p class="${isBehind ? 'problem' : 'soft'}" data-as-of>Read from the standby, whose last change is from ${time(asOf, 'seconds')}.${isBehind ? ' The standby is behind, so newer rows are missing here. The first page and the pages of requests and deliveries are read from the primary.' : ''}</p>`
}
