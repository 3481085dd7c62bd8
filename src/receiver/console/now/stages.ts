import { html } from 'hono/html'
import { type Markup, time, type Tone } from '../../../platform/pages/parts.ts'
import { causeClause } from '../../on-call/cause-words.ts'
import { slowAckMs } from '../../on-call/problems.ts'
import type { Now } from '../../on-call/reading.ts'
import { oldSeconds } from '../../upkeep/minutes.ts'
import { duration, foreign, number } from '../parts/parts.ts'

// The four stages of a webhook in the receiver, each with its figures of now.

type Tile = { label: string; value: Markup | string; href: string; note?: Markup | string; tone?: Tone }
/** False leaves out a tile. */
type Stage = { name: string; about: string; tiles: readonly (Tile | false)[] }

export function stages(now: Now): Markup {
  return html`<div class="stages">${stagesOf(now).map((stage) => html`<section class="stage" aria-labelledby="stage-${stage.name}"><h2 id="stage-${stage.name}">${stage.name}</h2><p class="about soft">${stage.about}</p><div class="tiles now">${stage.tiles.map((one) => one !== false && tile(one))}</div></section>`)}</div>`
}

function tile({ label, value, href, note = '', tone = '' }: Tile): Markup {
  return html`<a class="tile ${tone}" href="${href}"><span class="label">${label}</span><b>${value}</b><span class="note">${note}</span></a>`
}

function stagesOf(now: Now): Stage[] {
  const { problems, recent, pending, oldest_seconds, parked, overdue, backlog, keys } = now
  const of = (...outcomes: string[]) => recent.by_outcome.filter(({ outcome }) => outcomes.includes(outcome))
  const sum = (rows: Now['recent']['by_outcome']) => rows.reduce((all, { arrivals }) => all + arrivals, 0)
  const [refused, unavailable] = [of('refused'), of('unavailable')]
  const log = '/deliveries?view=arrivals'
  const isCritical = ({ cause, severity }: Now['problems'][number]) =>
    cause.startsWith('parked:') && severity === 'critical'
  return [
    {
      name: 'Received',
      about: 'webhooks that arrived',
      tiles: [
        {
          label: `Arrivals in ${recent.minutes} min`,
          value: number(recent.arrivals),
          href: log,
          note: `${number(sum(of('accepted')))} accepted, ${number(sum(of('duplicate')))} ${sum(of('duplicate')) === 1 ? 'duplicate' : 'duplicates'}`,
        },
        unavailable.length > 0 && {
          label: `Answered 503 in ${recent.minutes} min`,
          value: number(sum(unavailable)),
          href: `${log}&outcome=unavailable`,
          note: html`${causesOf(unavailable)}<span class="line">the provider sends them again</span>`,
          tone: 'bad',
        },
        {
          label: 'Response time (p95)',
          value: number(recent.ack_p95_ms, { decimals: (recent.ack_p95_ms ?? 0) < 100 ? 1 : 0, unit: 'ms' }),
          href: log,
          note: recent.ack_p95_ms === null ? 'no webhook in this time' : 'the provider waits 10 s',
          tone: (recent.ack_p95_ms ?? 0) >= slowAckMs ? 'warn' : '',
        },
      ],
    },
    {
      name: 'Verified',
      about: 'signature and time checked',
      tiles: [
        {
          label: `Refused in ${recent.minutes} min`,
          value: number(sum(refused)),
          href: '/parked',
          note: causesOf(refused),
          // Strangers are refused all day. Only refused arrivals that make a problem colour the tile.
          tone: problems.some(({ cause, severity }) => cause.startsWith('refused:') && severity !== 'notice')
            ? 'bad'
            : '',
        },
      ],
    },
    {
      name: 'Landed',
      about: 'results written to Postgres',
      tiles: [
        {
          label: 'Oldest unprocessed',
          value: pending === 0 ? 'none' : duration(oldest_seconds * 1000),
          href: '/deliveries?state=pending',
          note: pending > 0 ? `${number(pending)} waiting` : parked === 0 ? 'nothing waits' : 'besides the ones below',
          tone: pending > 0 && oldest_seconds > oldSeconds ? 'bad' : '',
        },
        {
          label: 'Parked',
          value: number(parked),
          href: '/parked',
          note: parked === 0 ? 'nothing to replay' : 'to replay by hand',
          tone: parked === 0 ? '' : problems.some(isCritical) ? 'bad' : 'warn',
        },
      ],
    },
    {
      name: 'Complete',
      about: 'full results fetched',
      tiles: [
        {
          label: 'Overdue requests',
          value: number(overdue),
          href: '/requests?overdue=true',
          note:
            backlog.due === 0
              ? waitsFor(overdue, problems)
              : `${number(backlog.due)}${backlog.due_capped ? '+' : ''} to poll, ${backlog.due_capped ? 'at least' : 'about'} ${number(backlog.minutes)} min`,
          tone: overdue > 0 ? 'warn' : '',
        },
        {
          label: 'Incomplete results',
          value: `${number(backlog.incomplete)}${backlog.incomplete_capped ? '+' : ''}`,
          href: '/reconciler',
          note: completing(backlog),
        },
        quotaTile(keys),
      ],
    },
  ]
}

function completing({ incomplete, complete_by: completeBy }: Now['backlog']): Markup | string {
  if (incomplete === 0) return 'none waits for its full result'
  if (completeBy === null) return 'completed once the provider answers'
  return html`all complete at ${time(completeBy, 'seconds')} at the earliest`
}

/** Why overdue requests are not due for a poll. */
function waitsFor(overdue: number, problems: Now['problems']): string {
  if (overdue === 0) return 'nothing to poll'
  return problems.some(({ cause }) => cause.startsWith('provider_unreachable'))
    ? 'polled as soon as the provider answers'
    : 'polled, and polled again later'
}

/** The lines of a tile, which make it as high as its neighbours. */
const shownKeys = 3

/** The keys with the least left first. */
function quotaTile(keys: Now['keys']): Tile {
  const calling = keys
    .filter(({ configured, retired }) => configured && !retired)
    .toSorted((a, b) => a.quota_left - b.quota_left)
  const [least, ...others] = calling
  if (least === undefined) return { label: 'API calls left', value: '—', href: '/keys', note: 'no key makes calls' }
  const name = (key: string) => foreign(key, 18)
  return {
    label: 'API calls left',
    value: number(least.quota_left),
    href: '/keys',
    note: html`<span class="line">this minute, key ${name(least.name)}</span>
      ${others.slice(0, shownKeys - 1).map((key) => html`<span class="line">key ${name(key.name)}: ${number(key.quota_left)}</span>`)}
      ${calling.length > shownKeys ? html`<span class="line">and ${calling.length - shownKeys} more keys</span>` : ''}`,
    tone: least.quota_left === 0 ? 'warn' : '',
  }
}

function causesOf(some: Now['recent']['by_outcome']): Markup | string {
  if (some.length === 0) return 'none'
  const line = ({ outcome, reason, arrivals }: (typeof some)[number]) =>
    html`<span class="line">${causeClause(reason ?? outcome)}: ${number(arrivals)}</span>`
  return html`${some.slice(0, 3).map(line)}`
}
