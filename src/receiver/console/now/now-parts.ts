import { html } from 'hono/html'
import { type Markup, emptyState, moment, time } from '../../../platform/pages/parts.ts'
import type { Problem } from '../../domain/problem.ts'
import type { Now } from '../../on-call/reading.ts'
import type { Issue } from '../../queries/issues.ts'
import { arrivalsTable } from '../deliveries/delivery-rows.ts'
import { player, type LinkPolicy } from '../parts/media.ts'
import { badge, card, foreign, lasting, shortId } from '../parts/parts.ts'

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
    html`${arrivalsTable('Latest arrivals', arrivals.slice(0, 5), {
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
