import { Router } from 'express'
import { html } from 'hono/html'
import { sendPage } from '../../../platform/pages/console-page.ts'
import { type Markup, linkTo, type Query, time } from '../../../platform/pages/parts.ts'
import { readNow, type Now } from '../../on-call/reading.ts'
import { readingOptions } from '../../on-call/reading.ts'
import { parseFilters } from '../../queries/filters.ts'
import { readMinutes, type Minutes } from '../../queries/minutes.ts'
import { giveUpCard } from '../parked/give-up-card.ts'
import { tryRead, type ReadAttempt } from '../parts/failures.ts'
import { problem, queryOf, without } from '../parts/parts.ts'
import { sharedReads } from '../parts/shared-read.ts'
import { countsShown, sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { charts, chartTimesSchema, isPast, minutesWanted, timeChoice } from './now-charts.ts'
import { latestArrivals, latestResults, problemList } from './now-parts.ts'
import { stages } from './stages.ts'

/** The first page. Its live part fetches itself again while the page is visible. */
export function nowRoutes(console: ConsoleDeps): Router {
  const { db, clock, logger } = console
  // In ms: all open tabs together ask Postgres no more often than this.
  const reads = sharedReads<Live>(1000)
  const chartReads = sharedReads<Drawn>(5000)
  const read = async (): Promise<Live> => {
    const now = await readNow(db, await readingOptions(console))
    console.counters.keep(now.counters)
    return { now, part: livePart(now, console) }
  }
  const readLive = () => tryRead(logger, () => reads('now', read))
  const readCharts = (query: Query) =>
    tryRead(logger, () => {
      const times = parseFilters(chartTimesSchema, without(query, 'live', 'open'))
      return chartReads(linkTo('', times), async () => {
        const minutes = await readMinutes(db, minutesWanted(times, clock()), clock())
        return { minutes, part: charts(minutes) }
      })
    })

  return Router()
    .get('/', async (req, res) => {
      const query = queryOf(req)
      const [now, minutes] = await Promise.all([readLive(), readCharts(query)])
      const body = nowPage({ now, minutes, query, console })
      const status = Math.max(now.status, minutes.status)
      sendConsolePage(console, res, { title: 'Now', body, status, charts: true })
    })
    .get('/now', async (_req, res) => {
      const now = await readLive()
      sendPage(res.status(now.status), now.ok ? now.value.part : failedPart(now))
    })
    .get('/now/charts', async (req, res) => {
      const minutes = await readCharts(queryOf(req))
      sendPage(res.status(minutes.status), minutes.ok ? minutes.value.part : problem(minutes.problem))
    })
}

/** Data with its markup, which is made once for all open tabs. */
type Live = { now: Now; part: Markup }
type Drawn = { minutes: Minutes; part: Markup }
type View = { now: ReadAttempt<Live>; minutes: ReadAttempt<Drawn>; query: Query; console: ConsoleDeps }

function nowPage({ now, minutes, query, console }: View): Markup {
  const live = query['live'] !== 'off'
  const times = { range: query['range'], since: query['since'], until: query['until'] }
  const still = minutes.status === 400 || (minutes.ok && isPast(minutes.value.minutes, console.clock()))
  const chartsCard = html`<div id="charts" hx-morph-skip>
    <section class="card" aria-labelledby="charts-title">
      <div class="head"><h2 id="charts-title">Over time</h2>${timeChoice(query, minutes.ok ? minutes.value.minutes : undefined)}</div>
      <div ${still ? '' : html`data-live hx-get="${linkTo('/now/charts', times)}" hx-trigger="every 20s, refresh" hx-swap="innerMorph" hx-sync="this:drop"`}>${minutes.ok ? minutes.value.part : problem(minutes.problem)}</div>
    </section>
  </div>`
  return html`<div class="head"><h1>Now</h1><span class="spacer"></span>
      <button type="button" class="quiet live" data-live-toggle data-key-action="tail" aria-pressed="${live ? 'true' : 'false'}">Live <kbd>t</kbd></button></div>
    <div id="live" data-live hx-get="/now" hx-trigger="every 2s, refresh" hx-swap="innerMorph" hx-sync="this:drop">
      ${now.ok ? livePart(now.value.now, console, chartsCard) : failedPart(now, chartsCard)}
    </div>`
}

const unreadable =
  'Postgres does not answer, or too slowly, so these figures cannot be read. Webhooks that cannot be stored are answered 503, and the provider sends them again. Check the database first. This page retries automatically.'

/** Keeps the charts, which refresh at their own pace. */
const chartsAsTheyStand = html`<div id="charts" hx-morph-skip></div>`

/** The part that is fetched again. */
function livePart(now: Now, { links }: ConsoleDeps, middle: Markup = chartsAsTheyStand): Markup {
  return html`<p class="as-of soft" data-counts="${JSON.stringify(countsShown(now.counters))}">As of ${time(now.at, 'seconds')} UTC</p>
    ${problemList(now)} ${stages(now)} ${middle} ${latestResults(now, links)}
    ${now.give_ups.length === 0 ? '' : giveUpCard(now.give_ups, now.at, { isShort: true })} ${latestArrivals(now)}`
}

function failedPart(now: Extract<ReadAttempt<Live>, { ok: false }>, middle: Markup = chartsAsTheyStand): Markup {
  return html`<section class="wrong" aria-label="What is wrong">${problem(now.status === 503 ? unreadable : now.problem)}</section> ${middle}`
}
