import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { duration } from './parts.ts'

const [width, height, margin] = [96, 22, 2]

export type Samples = { samples: readonly (number | null)[]; sample_seconds: number }

/** Counts over time as a small step chart, with the same in words. Empty for fewer than two counts. */
export function sparkline({ samples, sample_seconds: seconds }: Samples, label?: string): Markup {
  const counts = samples.filter((count) => count !== null)
  const [first, last] = [counts[0], counts.at(-1)]
  if (first === undefined || last === undefined || counts.length < 2) return html``
  const most = Math.max(...counts)
  const length = samples.findLastIndex((count) => count !== null) - samples.findIndex((count) => count !== null) + 1
  const words = `${label === undefined ? 'From' : `${label}: from`} ${first} to ${last} in ${duration(length * seconds * 1000)}, at most ${most}`
  return html`<svg class="sparkline" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${words}"><title>${words}</title><path d="${lineOf(samples, most)}"></path></svg>`
}

/** One stroke for each stretch without gaps. Each count is a level step, so that a single minute is no slope. */
function lineOf(samples: readonly (number | null)[], most: number): string {
  const step = (width - 2 * margin) / samples.length
  const across = (at: number) => rounded(margin + at * step)
  return samples
    .map((count, at) => {
      if (count === null) return ''
      const before = samples[at - 1] ?? null
      const up = rounded(height - margin - (count / Math.max(1, most)) * (height - 2 * margin))
      const begin = before === null ? `M${across(at)} ${up}` : before === count ? '' : `V${up}`
      return samples[at + 1] === count ? begin : `${begin}H${across(at + 1)}`
    })
    .join('')
}

function rounded(length: number): number {
  return Math.round(length * 10) / 10
}
