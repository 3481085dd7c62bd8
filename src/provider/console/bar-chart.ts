import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'

export type Bar = {
  /** The title of a bar: its meaning and its value. */
  words: string
  value: number
  /** The part of the value that is drawn as bad, at the foot of the bar. */
  bad?: number
}

export type BarChart = { label: string; most: string; bars: readonly Bar[]; from: string; until: string }

const [height, margin] = [120, 2]

/**
 * Bars over time as SVG, without script and as wide as the card. The page has a table of the same data for screen
 * readers.
 */
export function barChart({ label, most, bars, from, until }: BarChart): Markup {
  const highest = Math.max(1e-9, ...bars.map(({ value }) => value))
  const share = 100 / Math.max(1, bars.length)
  const rect = (tone: string, at: number, top: number, length: number) =>
    html`<rect class="${tone}" x="${rounded((at + 0.12) * share)}%" width="${rounded(share * 0.76)}%" y="${rounded(top)}" height="${rounded(length)}"></rect>`
  const drawn = bars.map(({ words, value, bad = 0 }, at) => {
    const lengthOf = (amount: number) => (amount === 0 ? 0 : Math.max(1.5, (amount / highest) * (height - margin)))
    const [all, wrong] = [lengthOf(value), lengthOf(bad)]
    return html`<g><title>${words}</title>
      <rect class="ground" x="${rounded(at * share)}%" width="${rounded(share)}%" y="0" height="${height}"></rect>
      ${value === 0 ? '' : rect('bar', at, height - all, all)}${bad === 0 ? '' : rect('bar bad', at, height - wrong, wrong)}
    </g>`
  })
  return html`<figure class="bars">
    <figcaption>${label} <span class="soft">at most ${most}</span></figcaption>
    <svg width="100%" height="${height}" aria-hidden="true">${drawn}<line x1="0" x2="100%" y1="${height - 0.5}" y2="${height - 0.5}"></line></svg>
    <div class="ends" aria-hidden="true"><span>${from}</span><span>${until}</span></div>
  </figure>`
}

function rounded(length: number): number {
  return Math.round(length * 100) / 100
}
