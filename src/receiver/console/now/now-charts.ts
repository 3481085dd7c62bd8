import { html } from 'hono/html'
import { z } from 'zod'
import { type Markup, linkTo, type Query, emptyState, hiddenFields, time } from '../../../platform/pages/parts.ts'
import { arrivalOutcomes } from '../../domain/arrivals-schema.ts'
import { minutesFiltersSchema, type MinutePoint, type Minutes, type MinutesFilters } from '../../queries/minutes.ts'

const rangeMinutes = { '1h': 60, '3h': 180, '24h': 1440 } as const
const ranges = ['1h', '3h', '24h'] as const
const usual = '3h'
/** Enough for the width of a chart; each is a row of its table too. */
const maxPoints = 300

/** A range moves with the clock. `since` and `until` are fixed. */
export const chartTimesSchema = minutesFiltersSchema
  .extend({ range: z.enum(ranges).optional() })
  .refine(({ range, since, until }) => range === undefined || (since ?? until) === undefined, {
    path: ['range'],
    message: 'cannot be combined with since or until',
  })
export type ChartTimes = z.infer<typeof chartTimesSchema>

export function minutesWanted({ range, since, until }: ChartTimes, now: Date): MinutesFilters & { maxPoints: number } {
  if ((since ?? until) !== undefined) return { since, until, maxPoints }
  return { since: new Date(now.getTime() - rangeMinutes[range ?? usual] * 60_000).toISOString(), maxPoints }
}

/** A past range does not change and is not fetched again. */
export function isPast({ until }: ChartTimes, now: Date): boolean {
  return until !== undefined && Date.parse(until) < now.getTime() - 120_000
}

/** Chooses the time range of the charts, by links and by a form. The address holds the choice. */
export function timeChoice(query: Query, shown: Minutes | undefined): Markup {
  const fixed = (query['since'] ?? query['until']) !== undefined
  const current = fixed ? undefined : (query['range'] ?? usual)
  return html`<div class="chart-times">
    <span class="presets" role="group" aria-label="Time range of the charts">
      ${ranges.map((range) => html`<a href="${linkTo('/', { live: query['live'], range })}" ${range === current ? html`aria-current="true"` : ''}>${range.replace('h', ' h')}</a>`)}
      ${shown === undefined ? '' : html`<a href="${linkTo('/', { live: query['live'], since: shown.since, until: shown.until })}" ${fixed ? html`aria-current="true"` : ''} title="Opens this page with these times in its address: copy that">Copy a link to this time range</a>`}
    </span>
    <form class="filters" method="get" action="/" data-filters>
      ${hiddenFields({ live: query['live'] })}
      ${bound('since', 'Since (UTC)', query)} ${bound('until', 'Until (UTC)', query)}
      <button class="quiet">Show</button>
    </form>
  </div>`
}

function bound(name: string, label: string, query: Query): Markup {
  return html`<label><span>${label}</span><input type="text" name="${name}" value="${query[name] ?? ''}" placeholder="YYYY-MM-DD hh:mm" autocomplete="off" spellcheck="false" /></label>`
}

/** The charts of one time range, with the starts of processes. All but the first are folded. */
export function charts(read: Minutes): Markup {
  const { since, until, step_minutes, minutes, process_starts } = read
  if (minutes.length === 0)
    return emptyState(
      html`No figures from ${time(since)} to ${time(until)}. No receiver ran then, or retention pruned them.`,
    )
  const points = gridOf(read)
  const at = points.map(([second]) => second)
  const marks = process_starts.map(({ started_at }) => Date.parse(started_at) / 1000)
  const of = (pick: (point: MinutePoint) => number | null, decimals = 0) =>
    points.map(([, point]) => (point === undefined ? null : rounded(pick(point), decimals)))
  const per = step_minutes === 1 ? 'a minute' : `in ${step_minutes} min`
  const worst = step_minutes === 1 ? '' : `, worst minute of ${step_minutes}`
  const step = step_minutes * 60
  const figures = linkTo('/api/minutes', { since, until })
  const line = (label: string, unit: string, path: string, series: Chart['series']) =>
    chart({ label, unit: `${unit}${worst}`, kind: 'line', at, marks, series, figures, leads: { path, step } })
  return html`${chart({ label: 'Arrivals by outcome', unit: per, kind: 'bars', at, marks, series: byOutcome(points), figures, leads: { path: '/deliveries?view=arrivals', by: 'outcome', step } })}
    <details class="more-charts"><summary>Landing, inbox and response time</summary><div class="charts">
      ${line('Landing, from arrival to result', 's', '/deliveries', [
        { label: 'p50', tone: 'accent', values: of((point) => point.landing_p50_seconds, 2) },
        { label: 'p95', tone: 'warn', values: of((point) => point.landing_p95_seconds, 2) },
      ])}
      ${line('Inbox: waiting to be processed', 'deliveries', '/deliveries', [{ label: 'waiting', tone: 'accent', values: of((point) => point.inbox_pending) }])}
      ${line('Response time', 'ms', '/deliveries?view=arrivals', [
        { label: 'p50', tone: 'accent', values: of((point) => point.ack_p50_ms, 1) },
        { label: 'p95', tone: 'warn', values: of((point) => point.ack_p95_ms, 1) },
      ])}
    </div></details>
    <p class="soft chart-note">${time(since)} to ${time(until)}. ${startsNote(process_starts)}</p>`
}

const tones = {
  accepted: 'good',
  duplicate: 'idle',
  parked: 'warn',
  hint: 'idle',
  refused: 'bad',
  unavailable: 'strong',
} as const

/** Leaves out outcomes that did not occur, except accepted. */
function byOutcome(points: readonly Place[]): Chart['series'] {
  const all = arrivalOutcomes.map((outcome) => ({
    label: outcome,
    tone: tones[outcome],
    values: points.map(([, point]) => (point === undefined ? null : countOf(point, outcome))),
  }))
  return all.filter(({ label, values }) => label === 'accepted' || values.some((value) => value !== null && value > 0))
}

/** Arrivals of an outcome in a minute, of all causes. */
export function countOf({ arrivals }: MinutePoint, outcome: string): number {
  return Object.entries(arrivals).reduce(
    (sum, [what, n]) => sum + (what === outcome || what.startsWith(`${outcome}/`) ? n : 0),
    0,
  )
}

function startsNote(starts: Minutes['process_starts']): Markup | string {
  const [last] = starts.slice(-1)
  if (last === undefined) return ''
  const newest = starts.slice(-5).toReversed()
  return html`A dashed line marks the start of a receiver: ${newest.map(({ started_at, host, version }, at) => html`${at === 0 ? '' : ', '}at ${time(started_at, 'seconds')} on <bdi>${host}</bdi> (${version})`)}${starts.length > newest.length ? `, and ${starts.length - newest.length} before` : ''}.`
}

type Place = readonly [second: number, point: MinutePoint | undefined]

/** One point for every step, so that missing figures are gaps and the axis shows the whole range. */
function gridOf({ since, until, step_minutes, minutes }: Minutes): Place[] {
  const step = step_minutes * 60
  const known = new Map(minutes.map((point) => [Date.parse(point.minute) / 1000, point]))
  const first = Math.ceil(Date.parse(since) / 1000 / step) * step
  const begin = Math.min(first, ...known.keys())
  const count = Math.max(1, Math.ceil((Date.parse(until) / 1000 - begin) / step))
  return Array.from({ length: count }, (_, at) => [begin + at * step, known.get(begin + at * step)] as const)
}

function rounded(value: number | null, decimals: number): number | null {
  return value === null ? null : Number(value.toFixed(decimals))
}

/** The data that assets/chart.js draws. Times are Unix seconds, tones are colours of the style sheet. */
export type Chart = {
  label: string
  unit: string
  kind: 'bars' | 'line'
  /** One value of each series for each time; null leaves a gap. */
  at: readonly number[]
  series: readonly { label: string; tone: Tone; values: readonly (number | null)[] }[]
  /** Vertical lines at the starts of processes. */
  marks?: readonly number[]
  /** The path of the figures, for browsers without script. */
  figures?: string
  /** The list that a click opens, for the clicked time. `by` is the filter that takes the clicked series. */
  leads?: { path: string; by?: string; step: number }
}
type Tone = 'good' | 'warn' | 'bad' | 'accent' | 'idle' | 'strong'

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
