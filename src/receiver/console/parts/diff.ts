import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { shownMediaItems } from '../../domain/page-limits.ts'
import type { Change } from '../../landing/replay.ts'
import { badge, foreign, shortId } from './parts.ts'

type Values = Readonly<Record<string, unknown>>

/** One row before and after, with only the columns that differ. A new or deleted row shows all. */
export function rowDiff(name: string, before: object | null, after: object | null): Markup {
  const [old, fresh]: [Values, Values] = [{ ...before }, { ...after }]
  const names = [...new Set([...Object.keys(old), ...Object.keys(fresh)])]
  const differing = names.filter((column) => text(old[column]) !== text(fresh[column]))
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
export function changesView(changes: readonly Change[]): Markup {
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
  const whole = text(value)
  if (whole === '') return html`<span class="soft">—</span>`
  return html`<span class="mono">${foreign(whole, 400)}</span>`
}

function text(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
