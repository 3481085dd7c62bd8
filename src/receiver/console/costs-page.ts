import { Router, type Request } from 'express'
import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { emptyState, numbers, table, tabs, time } from '../../platform/pages/parts.ts'
import { readBalances, type Balances } from '../fetching/balances.ts'
import { costFiltersSchema, readCosts, type Costs } from '../queries/costs.ts'
import { readWithin } from '../queries/deadline.ts'
import { parseFilters } from '../queries/filters.ts'
import { listRefusedSubmits } from '../submitting/refusals.ts'
import { dayMs } from '../upkeep/arrival-partitions.ts'
import { chart } from './parts/chart.ts'
import { tryRead } from './parts/failures.ts'
import { filterBar } from './parts/filter-bar.ts'
import { credits, foreign, number, problem } from './parts/parts.ts'
import { refusedSubmitsCard } from './parts/refused-submits.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { linkTo, queryOf, without, type Query } from './parts/url.ts'

const path = '/costs'
const groups = { model: 'Model', key_name: 'Key', day: 'Day' } as const
/** The provider's usage covers as many. */
const usualDays = 30

export function costsRoutes(console: ConsoleDeps): Router {
  return Router().get(path, async (req, res) => {
    const now = console.clock()
    const { by: tab = 'model', metadata, ...given } = queryOf(req)
    const by = metadata === undefined ? tab : `metadata.${metadata}`
    const bounded = (given['since'] ?? given['until']) !== undefined
    const since = new Date(now.getTime() - usualDays * dayMs).toISOString()
    const times = bounded ? given : { ...given, since }
    const read = await tryRead(console.logger, async () => ({
      balances: await readWithin(console.db, (tx) => readBalances(tx, now)),
      refused: (await readWithin(console.db, (tx) => listRefusedSubmits(tx, now))).filter(
        ({ status }) => status === 402,
      ),
      groups: await readCosts(console.db, parseFilters(costFiltersSchema, { ...times, by })),
      days: await readCosts(console.db, parseFilters(costFiltersSchema, { ...times, by: 'day' })),
    }))
    const query = { ...given, by: tab, ...(metadata !== undefined && { metadata }) }
    const fields = [{ name: 'metadata', label: 'By a member of the metadata', placeholder: 'user' }]
    const choices = Object.entries(groups).map(([name, label]) => ({
      label,
      href: linkTo(path, { ...given, by: name }),
      current: name === by,
    }))
    const within = bounded ? 'in UTC' : `in the last ${usualDays} days`
    const about = `Credits of live requests by the time of tracking, ${within}.`
    const body = html`${read.ok ? html`${creditsLeft(read.value.balances)} ${refusedSubmitsCard(read.value.refused)}` : ''}
      ${tabs('Costs by', choices)} ${filterBar({ path, query, fields, keep: ['by'], now, problem: read.ok ? undefined : read.problem })}
      ${read.ok ? costs(read.value, query, bounded ? 7 : usualDays) || none(submitCommand(console, req)) : ''}`
    sendConsolePage(console, res, { title: 'Costs', about, status: read.status, body, charts: true })
  })
}

/** The accounts whose submits are refused, and the last known balances of the others. */
function creditsLeft({ refused, accounts }: Balances): Markup {
  const known = accounts.filter(({ keyName }) => refused.every((one) => one.keyName !== keyName))
  return html`${refused.map(noCredits)}
    ${known.length === 0 ? '' : html`<p class="soft">Credits left, read once an hour: ${known.map(({ keyName, credits: left }, at) => html`${at === 0 ? '' : ', '}<b>${credits(left)}</b> (key ${foreign(keyName)})`)}.</p>`}`
}

function noCredits({ keyName, at }: Balances['refused'][number]): Markup {
  return problem(
    html`The account of the key <b>${foreign(keyName)}</b> has too few credits: the provider refused a submit at
      ${time(at)} with 402 insufficient_credits. Add credits at the provider. Refused submits are not repeated:
      their callers got the 402. Polling and landing continue. This alarm ends an hour after the last refusal.`,
  )
}

function none(command: string): Markup {
  return emptyState(html`No live request was tracked in this time. The next one appears here. Submit one:
    <pre class="body" data-copy="${command}" tabindex="0" role="region" aria-label="Command">${command}</pre>
    It costs credits. The <a href="/docs">documentation of the API</a> has all models.`)
}

/** A command that submits a generation with the first live key. */
function submitCommand({ settings, keys }: ConsoleDeps, req: Request): string {
  const host = req.get('host') ?? ''
  const origin = `${req.protocol}://${/^[\w.:[\]-]+$/.test(host) ? host : `127.0.0.1:${settings.internalPort}`}`
  const key = keys().all.find(({ environment, retired }) => environment === 'live' && !retired)
  const body = { model: 'aurora-image', input: { prompt: 'a lighthouse at dusk' }, key_name: key?.name }
  const token = settings.internalToken === undefined ? '' : ` -H "Authorization: Bearer $INTERNAL_TOKEN"`
  // A quote in the name of a key must not end the shell's word.
  const json = JSON.stringify(body).replaceAll("'", String.raw`\u0027`)
  return `curl ${origin}/api/generations${token} -H 'Content-Type: application/json' -d '${json}'`
}

/** The chart of costs by day, then the table by group. Empty without requests. */
function costs({ groups: by, days }: { groups: Costs; days: Costs }, query: Query, least: number): Markup | '' {
  if (by.total.requests === 0) return ''
  return html`${byDay(days, least, linkTo('/api/costs', { ...without(query, 'by', 'metadata'), by: 'day' }))}
    <div class="card table-card">${costTable(by, query)}</div>`
}

/** One bar for each day, the first day first; `least` days at least, since the axis needs more than one. */
function byDay({ data }: Costs, least: number, figures: string): Markup {
  const known = new Map(data.map((one) => [Date.parse(String(one.group)), one]))
  const last = Math.max(...known.keys())
  const first = Math.min(...known.keys(), last - (least - 1) * dayMs)
  const at = Array.from({ length: Math.round((last - first) / dayMs) + 1 }, (_, day) => first + day * dayMs)
  return chart({
    label: 'Credits by day',
    unit: '',
    kind: 'bars',
    at: at.map((ms) => ms / 1000),
    series: [
      { label: 'settled', tone: 'accent', values: at.map((ms) => known.get(ms)?.credits_settled ?? 0) },
      { label: 'reserved', tone: 'idle', values: at.map((ms) => known.get(ms)?.credits_reserved ?? 0) },
    ],
    figures,
    leads: { path: '/requests', step: dayMs / 1000 },
  })
}

function costTable({ by, data, others, total }: Costs, query: Query): Markup {
  const row = (name: Markup | string, { requests, credits_settled, credits_reserved }: Costs['total']) => [
    name,
    number(requests),
    credits(credits_settled),
    credits(credits_reserved),
  ]
  return table({
    label: 'Costs',
    columns: [
      by in groups ? groups[by === 'day' || by === 'key_name' ? by : 'model'] : by,
      ...numbers('Requests', 'Settled', 'Reserved'),
    ],
    rows: [
      ...data.map((one) => row(groupLink(by, one.group, query), one)),
      ...(others.requests > 0 ? [row('others', others)] : []),
      row(html`<b>Total</b>`, total),
    ],
  })
}

/** The requests of a group, within the chosen times. */
function groupLink(by: string, group: string | null, { since, until }: Query): Markup {
  if (group === null || (by !== 'model' && by !== 'key_name')) return foreign(group, 40)
  return html`<a href="${linkTo('/requests', { [by]: group, since, until })}">${foreign(group, 40)}</a>`
}
