import type { Request } from 'express'
import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { groupFailures, shownFailures, type Failures } from '../../on-call/failures.ts'
import { replayMany, type ReplayedMany } from '../../on-call/replay-many.ts'
import type { DeliveryFilters } from '../../queries/filters.ts'
import { changesView } from '../parts/diff.ts'
import { foreign, number, problem, shortId } from '../parts/parts.ts'
import type { ConsoleDeps } from '../parts/shell.ts'
import type { Query } from '../parts/url.ts'

/** So many are tried for a preview. */
const sampleRows = 20

/** Returns what a replay of the newest of these deliveries would change. */
export function trySample(
  { landing }: ConsoleDeps,
  filters: DeliveryFilters,
  signal: AbortSignal,
): Promise<ReplayedMany> {
  return replayMany(landing, { filters, dryRun: true, limit: sampleRows, signal })
}

/**
 * Whether a page may try by itself: only for somebody who came from this console
 * or typed the address. A foreign page can open ours, and shall set nothing off.
 */
export function mayTryByItself(req: Request): boolean {
  const site = req.get('sec-fetch-site')
  return site === undefined || site === 'same-origin' || site === 'none'
}

/** The place of the preview until it is there: fetched at once, or on demand. */
export function tryForm(query: Query, { byItself }: { byItself: boolean }): Markup {
  const path = '/deliveries/replay/preview'
  return html`<form method="post" action="${path}" hx-post="${path}" hx-trigger="${byItself ? 'load, submit' : 'submit'}" hx-target="closest section" hx-swap="outerHTML">
    ${Object.entries(query).map(([name, value]) => (value === undefined ? '' : html`<input type="hidden" name="${name}" value="${value}" />`))}
    <button class="quiet">Show what it would change</button>
  </form>`
}

export type Preview = {
  count: number
  sample: ReplayedMany
}

/** What it would come to, in one sentence; then the changes, and why some are refused. */
export function previewView({ count, sample }: Preview): Markup {
  const { changes, failed, replayed } = sample
  const all = replayed + failed.length
  const lead = count > all ? html`A dry run of the newest ${number(all)} of them:` : html`A dry run:`
  return html`<div aria-label="What it would change" role="group">
    ${failed.length > 0 ? problem(html`${lead} ${refusedWords(failed.length, all)}${changes.length === 0 ? '' : `; ${wouldChange(changes.length)}`}. Nothing has been changed.`) : html`<p>${lead} ${changes.length === 0 ? 'nothing would change: what they say is known already, or they would be parked again for the same reason.' : `${wouldChange(changes.length)}, as shown below; nothing has been changed yet.`}</p>`}
    ${failuresView(groupFailures(failed))} ${changesView(changes)}
  </div>`
}

/** Whether what was tried would be refused, all of it: pressing on would come to nothing. */
export function isAllRefused({ sample: { failed, replayed } }: Preview): boolean {
  return failed.length > 0 && replayed === 0
}

function refusedWords(failed: number, all: number): string {
  if (failed < all) return `${number(failed)} of ${number(all)} would fail`
  return all === 1 ? 'it would fail' : `all ${number(all)} would fail`
}

function wouldChange(changes: number): string {
  return `${number(changes)} would change what is stored`
}

export function failuresView(failures: readonly Failures[]): Markup {
  if (failures.length === 0) return html``
  return html`<h3>Why</h3><ul class="failures">${failures.map(({ message, count, delivery_ids }) => html`<li><b>${number(count)}</b> ${count === 1 ? 'delivery' : 'deliveries'}: ${foreign(message, 500)} <span class="soft">${delivery_ids.map((id) => html`${shortId('delivery', id)} `)}${count > shownFailures ? `and ${number(count - shownFailures)} more` : ''}</span></li>`)}</ul>`
}
