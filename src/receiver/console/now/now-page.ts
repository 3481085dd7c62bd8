import { Router } from 'express'
import { html } from 'hono/html'
import { sendPage } from '../../../platform/pages/console-page.ts'
import { type Markup, linkTo, type Query, time, emptyState, moment } from '../../../platform/pages/parts.ts'
import type { Problem } from '../../domain/problem.ts'
import { readNow, type Now, readingOptions } from '../../on-call/reading.ts'
import { parseFilters } from '../../queries/filters.ts'
import type { Issue } from '../../queries/issues.ts'
import { readMinutes, type Minutes } from '../../queries/minutes.ts'
import { arrivalColumns } from '../deliveries/delivery-rows.ts'
import { giveUpCard } from '../parked/give-up-card.ts'
import { tryRead, type ReadAttempt } from '../parts/failures.ts'
import { listTable } from '../parts/list-view.ts'
import { player, type LinkPolicy } from '../parts/media.ts'
import { problem, queryOf, without, badge, card, foreign, lasting, shortId } from '../parts/parts.ts'
import { sharedReads } from '../parts/shared-read.ts'
import { countsShown, sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { charts, chartTimesSchema, isPast, minutesWanted, timeChoice } from './now-charts.ts'
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

/** The label of the one action where the page that it opens does not tell it, by the kind of problem or its whole cause. */
const acts: Record<string, string> = {
  'refused:no_matching_secret': 'How to add the secret',
  slow_acknowledgement: 'See the arrivals',
  submits_refused: 'See the refused submits',
  credits_spent: 'See the refused submits',
  parked: 'See the deliveries',
  subscription_failing: 'See the subscription',
  subscription_stopped: 'Resume it',
}

/** The labels by the beginning of the address of the page. */
const actsByPage = [
  ['/requests/', 'See the request'],
  ['/requests', 'See the requests'],
  ['/deliveries?view=arrivals', 'See these arrivals'],
  ['/deliveries', 'See the deliveries'],
  ['/parked', 'See the cause'],
  ['/reconciler', 'See the reconciler'],
  ['/issues', 'See the issue'],
  ['/subscriptions', 'See the subscriptions'],
  ['/keys', 'See the keys'],
] as const

/** The problems, worst first, each with one action; without any, one line. Muted issues are folded. */
export function problemList({ at, problems, issues, calm_since }: Now): Markup {
  const issueOf = new Map(issues.map((issue) => [issue.cause, issue]))
  const item = (problem: Problem) => problemItem(problem, issueOf.get(problem.cause), at)
  const isMuted = ({ cause }: Problem) => issueOf.get(cause)?.state === 'muted'
  const [muted, wrong] = [problems.filter(isMuted), problems.filter((one) => !isMuted(one))]
  const folded = (some: readonly Problem[], words: string) =>
    some.length === 0
      ? ''
      : html`<details class="more-problems"><summary>${words}</summary><ol class="problems">${some.map(item)}</ol></details>`
  const known = folded(muted, `${muted.length === 1 ? 'One issue is' : `${muted.length} issues are`} muted`)
  if (wrong.length === 0) {
    return html`<section class="calm" aria-label="What is wrong"><p role="status"><b>${problems.length === 0 ? 'Nothing is wrong' : 'Nothing else is wrong'}</b>${calm_since === undefined ? '.' : html`, and nothing has been since ${time(calm_since)}.`}</p>${known}</section>`
  }
  const critical = wrong.filter(({ severity }) => severity === 'critical').length
  // More than five would push the figures out of reach on a phone. Critical ones are always shown.
  const shown = Math.max(5, critical)
  const rest = wrong.slice(shown)
  return html`<section class="wrong" aria-label="What is wrong">
    <p class="state" role="status">${stateLine(wrong, critical)}</p>
    <ol class="problems">${wrong.slice(0, shown).map(item)}</ol>
    ${folded(rest, `${rest.length === 1 ? 'One more' : `${rest.length} more`}, none of them critical`)} ${known}
  </section>`
}

/** A notice needs no action, so it is not counted as wrong. */
function stateLine(problems: readonly Problem[], critical: number): Markup {
  const notices = problems.filter(({ severity }) => severity === 'notice').length
  const wrong = problems.length - notices
  const known = notices === 1 ? 'The notice below needs no action.' : `The ${notices} notices below need no action.`
  if (wrong === 0) return html`<b>Nothing is wrong.</b> ${known}`
  const one = critical === 0 ? ', and it is not critical.' : ', and it is critical.'
  const many =
    critical === 0 ? ', none of them critical.' : `, ${critical === wrong ? 'all' : critical} of them critical.`
  const what = wrong === 1 ? 'One thing is wrong' : `${wrong} things are wrong`
  return html`<b>${what}</b>${wrong === 1 ? one : many} ${notices === 0 ? '' : known}`
}

function problemItem({ severity, text, cause, href }: Problem, issue: Issue | undefined, now: Date): Markup {
  const act = actOf(cause, href)
  const [effect = text, ...more] = text.split(/(?<=\.) /)
  const [advice, command] = more.join(' ').split(/(?=mediadock trigger )/)
  const age =
    issue === undefined
      ? ''
      : html` <span class="age" title="Since ${issue.opened_at}">${lasting(now.getTime() - Date.parse(issue.opened_at))}</span>`
  return html`<li class="${severity}" data-cause="${cause}"><span class="severity">${severity}</span> <span class="text"><bdi>${effect}</bdi>${age}${more.length === 0 ? '' : html`<span class="more"><bdi>${advice}</bdi>${command === undefined ? '' : html`<code data-copy="${command}">${command}</code>`}</span>`}</span> <a class="button" href="${href}">${act}</a></li>`
}

function actOf(cause: string, href: string): string {
  const known = acts[cause] ?? acts[cause.split(':')[0] ?? '']
  return known ?? actsByPage.find(([begin]) => href.startsWith(begin))?.[1] ?? 'See the page'
}

const columnsHere = ['received', 'outcome', 'cause', 'request', 'key', 'answered_in']

/** The latest results with their first picture, video or sound. */
export function latestResults({ results }: Now, links: LinkPolicy): Markup {
  const command = 'npx mediadock trigger ok'
  return card(
    'Latest results',
    results.length === 0
      ? emptyState(html`No result has landed yet. Send a signed sample: <code data-copy="${command}">${command}</code>`)
      : html`<div class="results">${results.map((result) => resultCard(result, links))}</div>
          <p class="more"><a href="/requests">All requests</a></p>`,
  )
}

export function latestArrivals({ arrivals }: Now): Markup {
  // Five, so that the first page stays within two screens.
  return card(
    'Latest arrivals',
    html`${listTable({
      label: 'Latest arrivals',
      columns: arrivalColumns,
      items: arrivals.slice(0, 5),
      staysRows: true,
      names: columnsHere,
      empty: 'No webhook has arrived yet.',
    })}
      ${arrivals.length === 0 ? '' : html`<p class="more"><a href="/deliveries?view=arrivals">All arrivals</a></p>`}`,
  )
}

type Result = Now['results'][number]

function resultCard(result: Result, links: LinkPolicy): Markup {
  const { request_id, model, status, landed_at } = result
  return html`<article class="result" id="result-${request_id}">
    <div class="media" hx-morph-skip-children>${mediaOf(result, links)}</div>
    <div class="about">
      <span>${shortId('request', request_id)} ${badge(status)}</span>
      <span class="soft">${foreign(model, 40)}</span>
      <span class="soft">${moment(landed_at, 'seconds')}${itemsOf(result)}</span>
    </div>
  </article>`
}

/** The number of items, if it is not one: `4 items`, or `1 so far` while only a webhook's item is known. */
function itemsOf({ media, media_items, media_complete }: Result): Markup | '' {
  if (!media_complete && media.length > 0)
    return html` · <span title="incomplete: only the item from the webhook is known">${media_items} so far</span>`
  return media_items > 1 ? html` · ${media_items} items` : ''
}

function mediaOf({ media: [first], error_message, request_id }: Result, links: LinkPolicy): Markup {
  if (!first)
    return html`<span class="instead">${error_message === null ? 'no media' : foreign(error_message, 120)}</span>`
  const refused = links.copyOf(first.sha256) === undefined ? links.whyNot(first.url) : undefined
  if (refused !== undefined) return html`<span class="instead">not shown: ${refused}</span>`
  return player({ ...first, name: `Result of ${request_id}`, href: `/requests/${request_id}` }, links)
}
