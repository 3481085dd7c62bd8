import { Router, type Request, type Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { actorOf } from '../../../platform/pages/access.ts'
import { sendPage } from '../../../platform/pages/console-page.ts'
import { fieldsOf, readForm } from '../../../platform/pages/form.ts'
import {
  type Markup,
  linkTo,
  type Query,
  confirmation,
  type Action,
  facts,
  moment,
  numbers,
  table,
  time,
} from '../../../platform/pages/parts.ts'
import type { Database } from '../../../platform/postgres/postgres.ts'
import { auditedCall, gone } from '../../api/operation.ts'
import { namedItems } from '../../domain/page-limits.ts'
import {
  replayMany,
  type ReplayedMany,
  findReplay,
  listReplays,
  requeueMany,
  type ManyReplayed,
  type ReplayProgress,
} from '../../on-call/replays.ts'
import { countDeliveries } from '../../queries/deliveries.ts'
import { deliveryFiltersSchema, InvalidFilterError, parseFilters, type DeliveryFilters } from '../../queries/filters.ts'
import { filtersAsTarget } from '../../upkeep/audit.ts'
import { badge, foreign, notice, number, problem, shortId, queryOf } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { failuresView, mayTryByItself, previewView, tryForm } from './replay-preview.ts'

export function replayRoutes(console: ConsoleDeps): Router {
  const { db, signal, wake } = console
  const sendReplayPage = (res: Response, card: Markup, status = 200) =>
    sendConsolePage(console, res, { title: 'Replay', status, body: html`<h1>Replay</h1>${card}` })
  const router = Router()

  router.get('/deliveries/replay', async (req, res) => {
    const chosen = await choose(db, chosenBy(req))
    sendReplayPage(res, questionCard(chosen, tryForm(chosen.query, { byItself: mayTryByItself(req) })))
  })
  // A dry run locks rows for a moment, so a link must not start one.
  router.post('/deliveries/replay/preview', readForm, async (req, res) => {
    const chosen = await choose(db, fieldsOf(req))
    // Few, because a dry run locks rows.
    const few = { filters: chosen.filters, limit: 20, dryRun: true, signal: AbortSignal.any([signal, gone(res)]) }
    const sample = await replayMany(console.landingDeps, few)
    const card = questionCard(chosen, previewView(chosen.count, sample), sample)
    if (req.get('hx-request') !== undefined) return sendPage(res, card)
    return sendReplayPage(res, card)
  })
  router.post('/deliveries/replay', readForm, async (req, res) => {
    const { query, filters, count } = await choose(db, fieldsOf(req))
    const { id } = await auditedCall(console, req, {
      action: count === 1 ? 'replay' : 'replay_many',
      target: filtersAsTarget(query),
      detailOf: (done) => done,
      work: () => requeueMany(db, { query, filters, count, actor: actorOf(req), time: console.time, signal }),
    })
    wake('inbox')
    res.redirect(303, `/deliveries/replays/${id}`)
  })
  router.get('/deliveries/replays', async (_req, res) => {
    const all = await listReplays(db)
    const about = 'Replays started from the console, newest first.'
    const body = html`<div class="card table-card">${replaysTable(all)}</div>`
    sendConsolePage(console, res, { title: 'Replays', about, body })
  })
  router.get('/deliveries/replays/:id', async (req, res) => {
    const { id } = req.params
    const replay = z.guid().safeParse(id).success ? await findReplay(db, id) : undefined
    const card = replay ? progressCard(replay) : unknownReplay()
    return sendReplayPage(res, card, replay ? 200 : 404)
  })
  return router
}

/** The filters of the list, or the selected rows, each as an `id`. */
function chosenBy(req: Request): Record<string, string> {
  const { id, ...query } = queryOf(req)
  if (id === undefined) return query
  const selected = req.query['id']
  return { ids: Array.isArray(selected) ? selected.map(String).join(',') : id }
}

type Chosen = { query: Record<string, string>; filters: DeliveryFilters; count: number }

async function choose(db: Database, query: Record<string, string>): Promise<Chosen> {
  const filters = parseFilters(deliveryFiltersSchema, query)
  const message = 'needs a selection or a filter: go back, and select deliveries or filter them'
  if (Object.keys(filters).length === 0) throw new InvalidFilterError('filter', message)
  return { query, filters, count: await countDeliveries(db, filters) }
}

/** The button appears with the result of the dry run, below it. */
function questionCard({ query, count }: Chosen, what: Markup, sample?: ReplayedMany): Markup {
  const body = html`${chosen(query, count)} ${whatWouldBe(count, what)}`
  const title = count === 1 ? 'Replay one delivery?' : `Replay ${number(count)} deliveries?`
  const confirm = count === 0 || sample === undefined ? undefined : confirmAction(query, count, sample)
  return confirmation({ title, what: body, confirm, back: backTo(query) })
}

function confirmAction(query: Query, count: number, { failed, replayed }: ReplayedMany): Action {
  const label = count === 1 ? 'Replay it' : `Replay ${number(count)}`
  const common = { path: '/deliveries/replay', fields: query, key: 'replay' }
  const isAllRefused = failed.length > 0 && replayed === 0
  return isAllRefused ? { ...common, label: `${label} anyway`, tone: 'quiet' } : { ...common, label }
}

function whatWouldBe(count: number, what: Markup): Markup {
  if (count === 0) return html`<p>No delivery is chosen, so there is nothing to replay.</p>`
  return html`<p class="soft">Replaying is safe to repeat: the first terminal state stays, unless the provider's own
    result overrules it, or a live webhook the state from a sandbox key.</p>${what}`
}

function chosen(query: Query, count: number): Markup {
  const { ids, ...others } = query
  const listed = ids?.split(',') ?? []
  const shown = listed.slice(0, namedItems).map((id) => html`${shortId('delivery', id)} `)
  const more = listed.length > namedItems ? `and ${listed.length - namedItems} more` : ''
  const filters = Object.entries(others).map(
    ([name, value]) => html`<span class="chip">${name} ${foreign(value, 60)}</span> `,
  )
  const are = count === 1 ? 'One delivery is' : `${number(count)} deliveries are`
  return html`<p>${are} chosen:
    ${shown}${more} ${filters}</p>`
}

function backTo(query: Query): string {
  const { ids, ...others } = query
  const listed = ids?.split(',') ?? []
  return listed.length === 1 ? `/deliveries/${listed[0]}` : linkTo('/deliveries', listed.length > 0 ? {} : others)
}

const othersNotice = html`<p class="soft">The others were waiting in the inbox already, or this replay was interrupted.
  Replaying them again is safe.</p>`

/** The progress of a replay. The page fetches itself again each second while deliveries wait. */
function progressCard(replay: ReplayProgress): Markup {
  const { id, count, requeued, waiting, parked, started_at, outcomes, failures, filters } = replay
  const again = html`hx-get="/deliveries/replays/${id}" hx-select="[data-progress]" hx-trigger="every 1s" hx-swap="outerMorph"`
  const ended = requeued - waiting
  return html`<section class="card" aria-label="Progress" data-progress ${waiting > 0 ? again : ''}>
    ${stateOf(replay)} ${chosen(filters, count)}
    <progress max="${Math.max(1, requeued)}" value="${ended}">${ended} of ${requeued}</progress>
    ${facts([
      ['Put back into the inbox', `${number(requeued)} of ${number(count)}`],
      ['Still waiting', number(waiting)],
      ['Outcomes', html`${outcomes.map(({ outcome, count: n }) => html`${badge(outcome)} ${number(n)} `)}`],
      ['Parked again', parked === 0 ? '0' : badge(number(parked), 'bad')],
      ['Started', html`${time(started_at)} by ${foreign(replay.actor, 40)}`],
    ])}
    ${requeued < count ? othersNotice : ''}
    ${failuresView(failures)}
    <div class="inline actions">
      <a class="button quiet" href="${backTo(filters)}">${count === 1 ? 'To the delivery' : 'To the deliveries'}</a>
    </div>
  </section>`
}

function stateOf({ requeued, waiting, parked, outcomes }: ReplayProgress): Markup {
  if (waiting > 0)
    return html`<h2>Replaying…</h2><noscript><p class="soft">Reload this page to see its progress.</p></noscript>`
  const replayed = number(requeued - parked)
  if (parked > 0) return problem(`${replayed} replayed, ${number(parked)} parked again for the reasons below.`)
  const changed = outcomes.find(({ outcome }) => outcome === 'landed')?.count ?? 0
  return notice(`${replayed} replayed, ${number(changed)} changed something.`)
}

function replaysTable(all: readonly ManyReplayed[]): Markup {
  return table({
    label: 'Replays',
    columns: ['Started', 'State', ...numbers('Chosen', 'Replayed', 'Parked again'), 'Who'],
    rows: all.map(({ id, started_at, count, requeued, waiting, parked, actor }) => ({
      id,
      cells: [
        html`<a href="/deliveries/replays/${id}">${moment(started_at)}</a>`,
        waiting > 0 ? badge('running') : badge('done', parked > 0 ? 'bad' : 'good'),
        number(count),
        number(requeued - waiting - parked),
        parked === 0 ? '0' : badge(number(parked), 'bad'),
        foreign(actor, 40),
      ],
    })),
    empty: 'The console has replayed nothing within RETENTION_DAYS.',
  })
}

function unknownReplay(): Markup {
  const why = 'There is no such replay. Retention deleted it after RETENTION_DAYS, or the link is incomplete.'
  return html`<section class="card">${problem(why)}
    <p>The <a href="/audit">audit</a> lists replays. A replay is safe to repeat.</p></section>`
}
