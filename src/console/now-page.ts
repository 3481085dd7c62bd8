import { html } from 'hono/html'
import type { Stats } from '../receiver/queries/stats.ts'
import type { Markup } from '../runtime/console-page.ts'
import type { LinkPolicy } from './media-links.ts'

/** The first page: what arrives and what became of it, fresh every second. */
export function nowPage(stats: Stats, links: LinkPolicy): Markup {
  return html`<h1>Now</h1>
    <div hx-get="/now" hx-trigger="every 1s" hx-swap="innerMorph">${nowTiles(stats, links)}</div>`
}

/** The part that is fetched again. */
export function nowTiles({ arrivals, results, pending, oldest_seconds, parked, overdue, backlog }: Stats, links: LinkPolicy): Markup {
  return html`<div class="tiles">
      ${tile(pending, 'waiting to land')} ${tile(`${Math.round(oldest_seconds)} s`, 'oldest waiting')} ${tile(parked, 'parked')}
      ${tile(overdue, 'overdue at the provider')} ${tile(backlog.due, backlog.due === 0 ? 'to ask the provider for' : `to ask the provider for, about ${backlog.minutes} min`)}
    </div>
    <div class="columns">
      <section class="card" aria-labelledby="arrivals">
        <h2 id="arrivals">Latest arrivals</h2>
        ${arrivals.length === 0 ? html`<p class="empty">No webhook has arrived yet.</p>` : arrivalTable(arrivals)}
      </section>
      <section class="card" aria-labelledby="results">
        <h2 id="results">Latest results</h2>
        ${results.length === 0
          ? html`<p class="empty">No result has landed yet.</p>`
          : html`<div class="results">${results.map((result) => resultCard(result, links))}</div>`}
      </section>
    </div>`
}

function tile(value: number | string, label: string): Markup {
  return html`<div class="tile"><b>${value}</b><span>${label}</span></div>`
}

function arrivalTable(arrivals: Stats['arrivals']): Markup {
  return html`<div class="scroll" tabindex="0" role="region" aria-labelledby="arrivals">
    <table>
      <thead>
        <tr>
          <th>Received</th>
          <th>Outcome</th>
          <th>Cause</th>
          <th>Request</th>
          <th>Key</th>
          <th>Answered in</th>
        </tr>
      </thead>
      <tbody>
        ${arrivals.map(
          (arrival) =>
            html`<tr>
              <td>${time(arrival.arrived_at)}</td>
              <td><span class="badge ${toneOf(arrival.outcome)}">${arrival.outcome}</span>${arrival.folded > 0 ? html` <span class="soft">+${arrival.folded}</span>` : ''}</td>
              <td>${arrival.reason ?? ''}</td>
              <td class="mono"><span title="${arrival.request_id ?? ''}">${arrival.request_id?.slice(0, 8) ?? '—'}</span></td>
              <td>${arrival.key_name ?? '—'}</td>
              <td>${arrival.ack_ms.toFixed(1)} ms</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`
}

function resultCard(result: Stats['results'][number], links: LinkPolicy): Markup {
  const extra = result.media.length > 1 ? html` <span class="soft">${result.media.length} items</span>` : ''
  return html`<article class="result" id="result-${result.request_id}">
    <div class="media">${mediaOf(result, links)}</div>
    <div class="about">
      <span class="soft">${result.model ?? 'unknown model'}</span>
      <span class="mono" title="${result.request_id}">${result.request_id}</span>
      <span><span class="badge ${result.status === 'COMPLETED' ? 'good' : 'bad'}">${result.status}</span>${extra}</span>
      <span class="soft">${result.media_complete ? '' : 'partly known, '}${time(result.landed_at)}</span>
    </div>
  </article>`
}

function mediaOf({ media: [first], error_message, request_id }: Stats['results'][number], links: LinkPolicy): Markup {
  if (!first) return html`<span>${error_message?.slice(0, 80) ?? 'no media'}</span>`
  if (!links.allows(first.url)) return html`<span>link not shown</span>`
  switch (first.kind) {
    case 'video':
      return html`<video src="${first.url}" controls muted preload="metadata"></video>`
    case 'audio':
      return html`<audio src="${first.url}" controls preload="none"></audio>`
    default:
      return html`<a href="${first.url}" rel="noreferrer"><img src="${first.url}" alt="Result of ${request_id}" loading="lazy" /></a>`
  }
}

function toneOf(outcome: string): string {
  if (outcome === 'accepted' || outcome === 'duplicate') return 'good'
  return outcome === 'parked' ? 'warn' : 'bad'
}

function time(iso: string): Markup {
  return html`<time datetime="${iso}" title="${iso}">${iso.slice(11, 23)}</time>`
}
