import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'

/** The data that assets/chart.js draws. Times are Unix seconds, tones are colours of the style sheet. */
export type Chart = {
  label: string
  unit: string
  kind: 'bars' | 'line'
  /** One value of each series for each time; null leaves a gap. */
  at: readonly number[]
  series: readonly {
    label: string
    tone: 'good' | 'warn' | 'bad' | 'accent' | 'idle' | 'strong'
    values: readonly (number | null)[]
  }[]
  /** Vertical lines at the starts of processes. */
  marks?: readonly { at: number; label: string }[]
  /** The path of the figures, for browsers without script. */
  figures?: string
  /** The list that a click opens, for the clicked time. `by` is the filter that takes the clicked series. */
  leads?: { path: string; by?: string; step: number }
}

/** A chart with its data as a table, which assets/chart.js writes when it is opened. Its page needs `charts: true`. */
export function chart({ figures, ...spec }: Chart): Markup {
  return html`<figure class="chart">
    <figcaption>${spec.label}${spec.unit === '' ? '' : html` <span class="soft">${spec.unit}</span>`}</figcaption>
    <div class="plot" hx-morph-skip-children data-chart="${JSON.stringify(spec)}" aria-hidden="true"></div>
    <details data-chart-table><summary>As a table</summary>
      <div class="scroll" tabindex="0" role="group" aria-label="${spec.label}, as a table" hx-morph-skip-children></div>
    </details>
    ${figures === undefined ? '' : html`<noscript><a href="${figures}">The figures</a></noscript>`}
  </figure>`
}
