import { html } from 'hono/html'
import type { Markup } from '../../pages/console-page.ts'
import { causeWords } from '../../receiver/on-call/cause-words.ts'
import type { Now } from '../../receiver/on-call/now.ts'
import type { Problem } from '../../receiver/on-call/problem.ts'
import { slowAckMs } from '../../receiver/on-call/problems.ts'
import type { Issue } from '../../receiver/queries/issues.ts'
import { oldSeconds } from '../../receiver/upkeep/minutes.ts'
import { arrivalColumns, arrivalRow } from '../deliveries/delivery-rows.ts'
import { pick } from '../parts/columns.ts'
import type { LinkPolicy } from '../parts/media-links.ts'
import { badge, card, duration, emptyState, foreign, moment, number, shortId, table, time, type Tone } from '../parts/parts.ts'
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
}

/** On a phone the figures must not be pushed out of reach; what is critical is always shown. */
const shownProblems = 5

/** What is wrong, the worst first, each with what acts on it; or that nothing is. What somebody knows of already stands behind a line. */
export function problemList({ at, problems, issues, calm_since }: Pick<Now, 'at' | 'problems' | 'issues' | 'calm_since'>): Markup {
  const issueOf = new Map(issues.map((issue) => [issue.cause, issue]))
  const item = (problem: Problem) => problemItem(problem, issueOf.get(problem.cause), at)
  const [muted, wrong] = [true, false].map((is) => problems.filter(({ cause }) => (issueOf.get(cause)?.state === 'muted') === is))
  const known = behindLine(muted ?? [], item, (count) => `${count === 1 ? 'One issue is' : `${count} issues are`} muted`)
  if (wrong === undefined || wrong.length === 0) {
    return html`<section class="calm" aria-label="What is wrong"><p role="status"><b>${problems.length === 0 ? 'Nothing is wrong' : 'Nothing else is wrong'}</b>${calm_since === undefined ? '.' : html`, and nothing has been since ${time(calm_since)}.`}</p>${known}</section>`
  }
  const shown = Math.max(shownProblems, wrong.filter(({ severity }) => severity === 'critical').length)
  const more = (count: number) => `${count === 1 ? 'One more' : `${count} more`}, none of them critical`
  return html`<section class="wrong" aria-label="What is wrong">
    <p class="unseen" role="status">${wrong.length === 1 ? 'One thing is wrong.' : `${wrong.length} things are wrong.`}</p>
    <ol class="problems">${wrong.slice(0, shown).map(item)}</ol>
    ${behindLine(wrong.slice(shown), item, more)} ${known}
  </section>`
}

function behindLine(problems: readonly Problem[], item: (problem: Problem) => Markup, words: (count: number) => string): Markup {
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

export type Tile = { label: string; value: Markup | string; href: string; note?: Markup | string; tone?: Tone }

export function tiles(now: Now): Markup {
  return html`<div class="tiles now">${tilesOf(now).map(
    ({ label, value, href, note = '', tone = '' }) =>
      html`<a class="tile ${tone}" href="${href}"><span class="label">${label}</span><b>${value}</b><span class="note">${note}</span></a>`,
  )}</div>`
}

function tilesOf({ problems, recent, pending, oldest_seconds, parked, overdue, backlog, keys }: Now): Tile[] {
  const of = (...outcomes: string[]) => recent.by_outcome.filter(({ outcome }) => outcomes.includes(outcome))
  const sum = (rows: Now['recent']['by_outcome']) => rows.reduce((all, { arrivals }) => all + arrivals, 0)
  const [refused, unavailable] = [of('refused'), of('unavailable')]
  const log = '/deliveries?view=arrivals'
  return [
    {
      label: `Arrivals in ${recent.minutes} min`,
      value: number(recent.arrivals),
      href: log,
      note: `${number(sum(of('accepted')))} accepted, ${number(sum(of('duplicate')))} again`,
    },
    {
      label: 'Acknowledged, 95 % within',
      value: number(recent.ack_p95_ms, { decimals: (recent.ack_p95_ms ?? 0) < 100 ? 1 : 0, unit: 'ms' }),
      href: log,
      note: recent.ack_p95_ms === null ? 'none in this time' : 'the provider waits 10 s',
      tone: (recent.ack_p95_ms ?? 0) >= slowAckMs ? 'warn' : '',
    },
    {
      label: 'Oldest unprocessed',
      value: pending === 0 ? 'none' : duration(oldest_seconds * 1000),
      href: '/deliveries?state=pending',
      note: pending === 0 ? 'everything is processed' : `${number(pending)} waiting`,
      tone: pending > 0 && oldest_seconds > oldSeconds ? 'bad' : '',
    },
    {
      label: `Refused in ${recent.minutes} min`,
      value: number(sum(refused)),
      href: '/parked',
      note: causesOf(refused),
      // Strangers are refused all day long: what is wrong says whether these are.
      tone: problems.some(({ cause, severity }) => cause.startsWith('refused:') && severity !== 'notice') ? 'bad' : '',
    },
    ...(unavailable.length === 0
      ? []
      : [
          {
            label: `Not acknowledged in ${recent.minutes} min`,
            value: number(sum(unavailable)),
            href: `${log}&outcome=unavailable`,
            note: html`${causesOf(unavailable)}<span class="line">answered 503: they come again</span>`,
            tone: 'bad' as const,
          },
        ]),
    {
      label: 'Parked',
      value: number(parked),
      href: '/parked',
      note: parked === 0 ? 'every body was usable' : 'need you',
      tone: parked > 0 ? 'warn' : '',
    },
    {
      label: 'Overdue requests',
      value: number(overdue),
      href: '/requests?overdue=true',
      note: backlog.due === 0 ? 'nothing to poll' : `${number(backlog.due)} to poll, about ${number(backlog.minutes)} min`,
      tone: overdue > 0 ? 'warn' : '',
    },
    quotaTile(keys),
  ]
}

const shownKeys = 3

/** The keys with the least left first. */
function quotaTile(keys: Now['keys']): Tile {
  const calling = keys.filter(({ configured, retired }) => configured && !retired).toSorted((a, b) => a.quota_left - b.quota_left)
  const [least, ...others] = calling
  if (least === undefined) return { label: 'Quota left', value: '—', href: '/keys', note: 'no key makes calls' }
  const name = (key: string) => foreign(key, 18)
  return {
    label: 'Quota left this minute',
    value: number(least.quota_left),
    href: '/keys',
    note: html`<span class="line">${name(least.name)}</span>${others.slice(0, shownKeys - 1).map((key) => html`<span class="line">${number(key.quota_left)} ${name(key.name)}</span>`)}${calling.length > shownKeys ? html`<span class="line">and ${calling.length - shownKeys} keys more</span>` : ''}`,
    tone: least.quota_left === 0 ? 'warn' : '',
  }
}

function causesOf(some: Now['recent']['by_outcome']): Markup | string {
  if (some.length === 0) return 'none'
  return html`${some.slice(0, 3).map(({ outcome, reason, arrivals }) => html`<span class="line">${number(arrivals)} ${causeText(reason ?? outcome)}</span>`)}`
}

function causeText(reason: string): string {
  return causeWords(reason)?.title.toLowerCase() ?? reason.replaceAll('_', ' ')
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
        columns: pick(arrivalColumns, places),
        rows: arrivals.map((arrival) => {
          const { id, cells } = arrivalRow(arrival)
          return { ...(id === undefined ? {} : { id }), cells: pick(cells, places) }
        }),
        empty: 'No webhook has arrived yet.',
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
  if (!first) return html`<span class="instead">${error_message === null ? 'no media' : foreign(error_message, 120)}</span>`
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
