import type { Request } from 'express'
import { html } from 'hono/html'
import { type Markup, type Query, hiddenFields } from '../../../platform/pages/parts.ts'
import { namedItems, shownMediaItems } from '../../domain/page-limits.ts'
import type { Change } from '../../landing/replay.ts'
import { groupFailures, type Failures, type ReplayedMany } from '../../on-call/replays.ts'
import { foreign, number, problem, shortId, badge, textOf } from '../parts/parts.ts'

/**
 * True if the page may start the dry run without a press: only if the request came from this console or from a typed
 * address. A foreign page can open this page and must start nothing.
 */
export function mayTryByItself(req: Request): boolean {
  const site = req.get('sec-fetch-site')
  return site === undefined || site === 'same-origin' || site === 'none'
}

/** The place of the preview: fetched at once, or on demand. */
export function tryForm(query: Query, { byItself }: { byItself: boolean }): Markup {
  const path = '/deliveries/replay/preview'
  return html`<form method="post" action="${path}" hx-post="${path}" hx-target="closest section" hx-swap="outerHTML"
      hx-trigger="${byItself ? 'load, submit' : 'submit'}">
    ${hiddenFields(query)}<button class="quiet">Show what it would change</button>
  </form>`
}

/** The result of the dry run in one sentence, then the changes, and why some deliveries are refused. */
export function previewView(count: number, { changes, failed, replayed }: ReplayedMany): Markup {
  const all = replayed + failed.length
  const lead = count > all ? `A dry run of the newest ${number(all)} of them:` : 'A dry run:'
  const change = `${number(changes.length)} would change what is stored`
  const some =
    failed.length < all ? `${number(failed.length)} of ${number(all)}` : all === 1 ? 'it' : `all ${number(all)}`
  const refused = `${lead} ${some} would fail${changes.length === 0 ? '' : `; ${change}`}. Nothing has been changed.`
  const changed =
    changes.length === 0
      ? 'nothing would change. Their results are already known, or they would be parked again for the same reason.'
      : `${change}, as shown below; nothing has been changed yet.`
  return html`<div aria-label="What it would change" role="group">
    ${failed.length > 0 ? problem(refused) : html`<p>${lead} ${changed}</p>`}
    ${failuresView(groupFailures(failed))} ${changesView(changes)}
  </div>`
}

export function failuresView(failures: readonly Failures[]): Markup {
  if (failures.length === 0) return html``
  return html`<h3>Why</h3><ul class="failures">${failures.map(failureItem)}</ul>`
}

function failureItem({ message, count, delivery_ids }: Failures): Markup {
  const ids = delivery_ids.map((id) => html`${shortId('delivery', id)} `)
  const more = count > namedItems ? `and ${number(count - namedItems)} more` : ''
  return html`<li><b>${number(count)}</b> ${count === 1 ? 'delivery' : 'deliveries'}: ${foreign(message, 500)}
    <span class="soft">${ids}${more}</span></li>`
}

type Values = Readonly<Record<string, unknown>>

/** One row before and after, with only the columns that differ. A new or deleted row shows all. */
function rowDiff(name: string, before: object | null, after: object | null): Markup {
  const [old, fresh]: [Values, Values] = [{ ...before }, { ...after }]
  const names = [...new Set([...Object.keys(old), ...Object.keys(fresh)])]
  const differing = names.filter((column) => textOf(old[column] ?? '') !== textOf(fresh[column] ?? ''))
  const same = names.length - differing.length
  return html`<div class="scroll" tabindex="0" role="group" aria-label="${name}, before and after"><table class="diff">
    <caption>${name} ${before === null ? badge('new', 'good') : after === null ? badge('removed', 'bad') : ''}</caption>
    <thead><tr><th scope="col">Column</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>
      ${differing.map((column) => html`<tr><th scope="row" class="mono">${column}</th><td class="was">${shown(old[column])}</td><td class="is">${shown(fresh[column])}</td></tr>`)}
    </tbody>
  </table></div>
  ${same > 0 ? html`<p class="soft">${same} other ${same === 1 ? 'column stays' : 'columns stay'} as ${same === 1 ? 'it is' : 'they are'}.</p>` : ''}`
}

/** The rows that landings write, by request. More than three requests are folded. */
function changesView(changes: readonly Change[]): Markup {
  return html`${changes.map((change) =>
    changes.length <= 3
      ? html`<article class="change"><h3>${summary(change)}</h3>${details(change)}</article>`
      : html`<details class="change"><summary>${summary(change)}</summary>${details(change)}</details>`,
  )}`
}

function summary({ request_id, outcome, request, media }: Change): Markup {
  const [was, is] = [statusOf(request.before), statusOf(request.after)]
  const status = is === undefined || was === is ? '' : `${was ?? 'new'} → ${is}`
  const items = [
    media.written.length > 0 ? `${media.written.length} media written` : '',
    media.removed.length > 0 ? `${media.removed.length} media removed` : '',
  ]
  return html`Request ${shortId('request', request_id)} ${badge(outcome)} <span class="soft">${[status, ...items].filter(Boolean).join(', ')}</span>`
}

function statusOf(row: object | null): string | undefined {
  return row !== null && 'status' in row ? String(row.status) : undefined
}

function details({ request, media }: Change): Markup {
  const more = Math.max(0, media.written.length - shownMediaItems) + Math.max(0, media.removed.length - shownMediaItems)
  return html`${request.after === null ? html`<p class="soft">The row of the request stays as it is.</p>` : rowDiff('Request', request.before, request.after)}
    ${media.removed.slice(0, shownMediaItems).map((row) => rowDiff('Media', row, null))} ${media.written.slice(0, shownMediaItems).map((row) => rowDiff('Media', null, row))}
    ${more > 0 ? html`<p class="soft">${more} more media are not shown.</p>` : ''}`
}

function shown(value: unknown): Markup {
  const whole = textOf(value ?? '')
  if (whole === '') return html`<span class="soft">—</span>`
  return html`<span class="mono">${foreign(whole, 400)}</span>`
}
