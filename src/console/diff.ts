import { html } from 'hono/html'
import type { Markup } from '../runtime/console-page.ts'
import { badge, shortId } from './parts.ts'

type Values = Readonly<Record<string, unknown>>

/** One row before and after, only what differs; a row that is new or gone shows what it has. */
export function rowDiff(name: string, before: object | null, after: object | null): Markup {
  const [old, fresh]: [Values, Values] = [{ ...before }, { ...after }]
  const names = [...new Set([...Object.keys(old), ...Object.keys(fresh)])]
  const differing = names.filter((column) => text(old[column]) !== text(fresh[column]))
  const same = names.length - differing.length
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${name}, before and after"><table class="diff">
    <caption>${name} ${before === null ? badge('new', 'good') : after === null ? badge('removed', 'bad') : ''}</caption>
    <thead><tr><th scope="col">Column</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>
      ${differing.map((column) => html`<tr><th scope="row" class="mono">${column}</th><td class="was">${shown(old[column])}</td><td class="is">${shown(fresh[column])}</td></tr>`)}
    </tbody>
  </table></div>
  ${same > 0 ? html`<p class="soft">${same} other ${same === 1 ? 'column stays' : 'columns stay'} as ${same === 1 ? 'it is' : 'they are'}.</p>` : ''}`
}

export type ShownChange = {
  request_id: string
  outcome: string
  request: { before: object | null; after: object | null }
  media: { written: readonly object[]; removed: readonly object[] }
}

/** What one landing writes: the request's row and its media. */
export function changeDiff({ request_id, outcome, request, media }: ShownChange): Markup {
  return html`<article class="change">
    <h3>Request ${shortId('request', request_id)} ${badge(outcome)}</h3>
    ${request.after === null ? html`<p class="soft">The row of the request stays as it is.</p>` : rowDiff('Request', request.before, request.after)}
    ${media.removed.map((row) => rowDiff('Media', row, null))} ${media.written.map((row) => rowDiff('Media', null, row))}
  </article>`
}

const maxShown = 400

function shown(value: unknown): Markup {
  const whole = text(value)
  if (whole === '') return html`<span class="soft">—</span>`
  return html`<bdi class="mono">${whole.length > maxShown ? `${whole.slice(0, maxShown)}…` : whole}</bdi>`
}

function text(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
