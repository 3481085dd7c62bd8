import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import type { Problem } from '../../domain/problem.ts'
import type { Now } from '../../on-call/now.ts'
import type { Issue } from '../../queries/issues.ts'
import { arrivalColumns, arrivalRow } from '../deliveries/delivery-rows.ts'
import { pick } from '../parts/columns.ts'
import type { LinkPolicy } from '../parts/media-links.ts'
import { badge, card, duration, emptyState, foreign, moment, shortId, table, time } from '../parts/parts.ts'
import { sparkline } from '../parts/sparkline.ts'

/** What to press, by the kind of problem: its first word, or the whole cause. */
const acts: Record<string, string> = {
  refused: 'See the cause, verify again',
  unavailable: 'See these arrivals',
  slow_acknowledgement: 'See the arrivals',
  inbox_old: 'See what waits',
  giving_up: 'Verify the quarantine again',
  given_up: 'Verify the quarantine again',
  reconciler_silent: 'See the reconciler',
  reconciler_failed: 'See the reconciler',
  provider_unreachable: 'See the reconciler',
  contradiction: 'See the deliveries',
  contradiction_decided: 'See the deliveries',
  strangers: 'See these arrivals',
  overdue: 'See the requests',
  parked: 'See the cause, replay',
  wrong_tokens: 'See the issue',
}

/** On a phone the figures must not be pushed out of reach; what is critical is always shown. */
const shownProblems = 5

/** What is wrong, the worst first, each with what acts on it; or that nothing is. What somebody knows of already stands behind a line. */
export function problemList({
  at,
  problems,
  issues,
  calm_since,
}: Pick<Now, 'at' | 'problems' | 'issues' | 'calm_since'>): Markup {
  const issueOf = new Map(issues.map((issue) => [issue.cause, issue]))
  const item = (problem: Problem) => problemItem(problem, issueOf.get(problem.cause), at)
  const [muted, wrong] = [true, false].map((is) =>
    problems.filter(({ cause }) => (issueOf.get(cause)?.state === 'muted') === is),
  )
  const known = behindLine(
    muted ?? [],
    item,
    (count) => `${count === 1 ? 'One issue is' : `${count} issues are`} muted`,
  )
  if (wrong === undefined || wrong.length === 0) {
    return html`<section class="calm" aria-label="What is wrong"><p role="status"><b>${problems.length === 0 ? 'Nothing is wrong' : 'Nothing else is wrong'}</b>${calm_since === undefined ? '.' : html`, and nothing has been since ${time(calm_since)}.`}</p>${known}</section>`
  }
  const critical = wrong.filter(({ severity }) => severity === 'critical').length
  const shown = Math.max(shownProblems, critical)
  const more = (count: number) => `${count === 1 ? 'One more' : `${count} more`}, none of them critical`
  return html`<section class="wrong" aria-label="What is wrong">
    <p class="state" role="status"><b>${wrong.length === 1 ? 'One thing is wrong' : `${wrong.length} things are wrong`}</b>${critical === 0 ? ', none of them critical.' : wrong.length === critical ? ', and critical.' : `, ${critical} of them critical.`}</p>
    <ol class="problems">${wrong.slice(0, shown).map(item)}</ol>
    ${behindLine(wrong.slice(shown), item, more)} ${known}
  </section>`
}

function behindLine(
  problems: readonly Problem[],
  item: (problem: Problem) => Markup,
  words: (count: number) => string,
): Markup {
  if (problems.length === 0) return html``
  return html`<details class="more-problems"><summary>${words(problems.length)}</summary><ol class="problems">${problems.map(item)}</ol></details>`
}

function problemItem({ severity, text, cause, href }: Problem, issue: Issue | undefined, now: Date): Markup {
  const act = acts[cause.split(':')[0] ?? ''] ?? 'See the keys'
  const age =
    issue === undefined
      ? ''
      : html` <span class="age" title="Since ${issue.opened_at}">for ${duration(Math.max(1000, now.getTime() - Date.parse(issue.opened_at)))}</span>`
  return html`<li class="${severity}" data-cause="${cause}"><span class="severity">${severity}</span> <span class="text"><bdi>${text}</bdi>${age}${issue === undefined ? '' : html` ${sparkline(issue)}`}</span> <a class="button" href="${href}">${act}</a></li>`
}

const columnsHere = ['received', 'outcome', 'cause', 'request', 'key', 'answered_in']
const places = arrivalColumns.flatMap(({ name }, place) => (columnsHere.includes(name) ? [place] : []))

/** The latest results with their pictures, and the latest arrivals. */
export function latest({ arrivals, results }: Pick<Now, 'arrivals' | 'results'>, links: LinkPolicy): Markup {
  return html`${card(
    'Latest results',
    results.length === 0
      ? emptyState('No result has landed yet.')
      : html`<div class="results">${results.map((result) => resultCard(result, links))}</div><p class="more"><a href="/requests">All requests</a></p>`,
  )}
    ${card(
      'Latest arrivals',
      html`${table({
        label: 'Latest arrivals',
        staysRows: true,
        columns: pick(arrivalColumns, places),
        rows: arrivals.map((arrival) => {
          const { id, cells } = arrivalRow(arrival)
          return { ...(id === undefined ? {} : { id }), cells: pick(cells, places) }
        }),
        empty: 'No webhook has arrived in the time that is kept (RETENTION_DAYS).',
      })}
        ${arrivals.length === 0 ? '' : html`<p class="more"><a href="/deliveries?view=arrivals">All arrivals</a></p>`}`,
    )}`
}

type Result = Now['results'][number]

function resultCard(result: Result, links: LinkPolicy): Markup {
  const { request_id, model, status, media, media_items, media_complete, landed_at } = result
  return html`<article class="result" id="result-${request_id}">
    <div class="media">${mediaOf(result, links)}</div>
    <div class="about">
      <span>${shortId('request', request_id)} ${badge(status)}</span>
      <span class="soft">${foreign(model, 40)}</span>
      <span class="soft">${moment(landed_at, 'seconds')}${media_items > 1 ? html` · ${media_items} items` : ''}${media_complete || media.length === 0 ? '' : ' · not complete yet'}</span>
    </div>
  </article>`
}

function mediaOf({ media: [first], error_message, request_id }: Result, links: LinkPolicy): Markup {
  if (!first)
    return html`<span class="instead">${error_message === null ? 'no media' : foreign(error_message, 120)}</span>`
  const copy = links.copyOf(first.sha256)
  const refused = copy === undefined ? links.whyNot(first.url) : undefined
  if (refused !== undefined) return html`<span class="instead">not shown: ${refused}</span>`
  switch (first.kind) {
    case 'video':
      return html`<video src="${copy?.whole ?? first.url}" ${copy === undefined ? '' : html`poster="${copy.small}"`} controls muted preload="metadata" aria-label="Result of ${request_id}"></video>`
    case 'audio':
      return html`<audio src="${copy?.whole ?? first.url}" controls preload="none" aria-label="Result of ${request_id}"></audio>`
    default:
      return html`<a href="/requests/${request_id}"><img src="${copy?.small ?? first.url}" alt="Result of ${request_id}" loading="lazy" decoding="async" /></a>`
  }
}
