import { Router, type Request } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { HttpError } from '../../../platform/http/http.ts'
import { actorOf } from '../../../platform/pages/access.ts'
import { sendPage, type Markup } from '../../../platform/pages/console-page.ts'
import { fieldsOf, readForm } from '../../../platform/pages/form.ts'
import { gone, unknown, uuidParam } from '../../api/operation.ts'
import { parseNotification } from '../../domain/delivery.ts'
import {
  findReplay,
  listReplays,
  maxRunning,
  startReplay,
  stopReplay,
  type ReplayJob,
} from '../../on-call/replay-jobs.ts'
import { readWithin } from '../../queries/deadline.ts'
import { countDeliveries } from '../../queries/deliveries.ts'
import { findDelivery } from '../../queries/delivery-detail.ts'
import { deliveryFiltersSchema, InvalidFilterError, parseFilters, type DeliveryFilters } from '../../queries/filters.ts'
import { changesView } from '../parts/diff.ts'
import {
  badge,
  confirmation,
  duration,
  facts,
  foreign,
  moment,
  notice,
  number,
  problem,
  shortId,
  table,
  time,
  type Action,
  type Tone,
} from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { linkTo, queryOf, without, type Query } from '../parts/url.ts'
import {
  failuresView,
  isAllRefused,
  mayTryByItself,
  previewView,
  tryForm,
  trySample,
  type Preview,
} from './replay-preview.ts'

export function replayRoutes(console: ConsoleDeps): Router {
  const { db, signal, clock, background } = console
  const router = Router()

  router.get('/deliveries/replay', async (req, res) => {
    const query = chosenBy(req)
    const filters = filtersOf(query)
    const count = await countDeliveries(db, filters)
    const unreadable = count === 1 && (await isUnreadable(console, filters))
    sendConsolePage(console, res, {
      title: 'Replay',
      body: questionPage(
        questionCard({ query, count, unreadable, what: tryForm(query, { byItself: mayTryByItself(req) }) }),
      ),
    })
  })
  // It locks what it tries, for a moment: nothing that an address alone may set off.
  router.post('/deliveries/replay/preview', readForm, async (req, res) => {
    const query = without(fieldsOf(req))
    const filters = filtersOf(query)
    const count = await countDeliveries(db, filters)
    const preview = { count, sample: await trySample(console, filters, AbortSignal.any([signal, gone(res)])) }
    const card = questionCard({ query, count, unreadable: false, what: previewView(preview), preview })
    if (req.get('hx-request') !== undefined) return sendPage(res, card)
    return sendConsolePage(console, res, { title: 'Replay', body: questionPage(card) })
  })
  router.post('/deliveries/replay', readForm, async (req, res) => {
    const query = without(fieldsOf(req))
    const count = await countDeliveries(db, filtersOf(query))
    const id = await startReplay(db, { query, count, actor: actorOf(req), now: clock() })
    if (id === undefined)
      throw new HttpError(
        503,
        'too_many_waiting',
        `${maxRunning} replays run already: wait for one to end, or stop it`,
        {
          headers: { 'retry-after': '10' },
        },
      )
    background.wake('replays')
    res.redirect(303, `/deliveries/replays/${id}`)
  })
  router.get('/deliveries/replays', async (_req, res) => {
    const all = await readWithin(db, (tx) => listReplays(tx))
    const body = html`<div class="head"><h1>Replays</h1><span class="soft">Replays of many deliveries started from the console, on any replica, newest first.</span></div>
      <div class="card table-card">${replaysTable(all)}</div>`
    sendConsolePage(console, res, { title: 'Replays', body })
  })
  router.get('/deliveries/replays/:id', async (req, res) => {
    const { id } = req.params
    const job = z.guid().safeParse(id).success ? await findReplay(db, id) : undefined
    if (req.query['part'] !== undefined) return sendPage(res, job ? progress(job) : lost())
    const body = html`<h1>Replay</h1>${job ? progress(job) : lost()}`
    return sendConsolePage(console, res, { title: 'Replay', status: job ? 200 : 404, body })
  })
  router.post('/deliveries/replays/:id/stop', async (req, res) => {
    const id = uuidParam(req, 'id')
    if (!(await findReplay(db, id))) throw unknown(req)
    await stopReplay(db, id)
    background.wake('replays')
    res.redirect(303, `/deliveries/replays/${id}`)
  })
  return router
}

/** Filters as the list has them; the rows that were selected there come one by one, as `id`. */
function chosenBy(req: Request): Record<string, string> {
  const { id, ...query } = queryOf(req)
  if (id === undefined) return query
  const selected = req.query['id']
  return { ids: Array.isArray(selected) ? selected.map(String).join(',') : id }
}

function filtersOf(query: Query): DeliveryFilters {
  const filters = parseFilters(deliveryFiltersSchema, query)
  if (Object.keys(filters).length === 0)
    throw new InvalidFilterError(
      'filter',
      'names nothing, and without a filter nothing is replayed: go back, and select deliveries or filter them',
    )
  return filters
}

async function isUnreadable({ db }: ConsoleDeps, { ids }: DeliveryFilters): Promise<boolean> {
  const delivery = ids?.[0] === undefined ? undefined : await findDelivery(db, ids[0])
  return delivery !== undefined && !parseNotification(Buffer.from(delivery.body_base64, 'base64')).ok
}

type ReplayQuestion = { query: Query; count: number; unreadable: boolean; what: Markup; preview?: Preview }

function questionPage(card: Markup): Markup {
  return html`<h1>Replay</h1>${card}`
}

/** The button stands below what the dry run came to, and is there only once it is known. */
function questionCard({ query, count, unreadable, what, preview }: ReplayQuestion): Markup {
  const body = html`${chosen(query, count)} ${unreadable ? problem('Its bytes cannot be understood today either: a replay leaves it as it is, parked. It can be replayed once this receiver understands such bodies.') : whatWouldBe(count, what)}`
  const title = count === 1 ? 'Replay one delivery?' : `Replay ${number(count)} deliveries?`
  const confirm = count === 0 || unreadable || preview === undefined ? undefined : confirmAction(query, count, preview)
  return confirmation({ title, what: body, confirm, back: backTo(query) })
}

function confirmAction(query: Query, count: number, preview: Preview): Action {
  const label = count === 1 ? 'Replay it' : `Replay ${number(count)}`
  const common = { path: '/deliveries/replay', fields: query, key: 'replay' }
  return isAllRefused(preview) ? { ...common, label: `${label} all the same`, tone: 'quiet' } : { ...common, label }
}

function whatWouldBe(count: number, what: Markup): Markup {
  if (count === 0) return html`<p>No delivery is chosen, so there is nothing to replay.</p>`
  return html`<p class="soft">Replaying is safe to repeat: the first terminal state stays, and only the provider's own result overrules a webhook.</p>${what}`
}

function chosen(query: Query, count: number): Markup {
  const { ids, ...others } = query
  const listed = ids?.split(',') ?? []
  return html`<p>${count === 1 ? 'One delivery is' : `${number(count)} deliveries are`} chosen${listed.length > 0 ? html`: ${listed.slice(0, 8).map((id) => html`${shortId('delivery', id)} `)}${listed.length > 8 ? `and ${listed.length - 8} more` : ''}` : ''}
    ${Object.entries(others).map(([name, value]) => html`<span class="chip">${name} ${foreign(value, 60)}</span> `)}</p>`
}

function backTo(query: Query): string {
  const { ids, ...others } = query
  const listed = ids?.split(',') ?? []
  return listed.length === 1 ? `/deliveries/${listed[0]}` : linkTo('/deliveries', listed.length > 0 ? {} : others)
}

/** Fetched again each second while it runs. */
function progress(job: ReplayJob): Markup {
  const { id, state, stopping, count, replayed, changed, failed, startedAt, endedAt, changes, failures, query } = job
  const running = state === 'running'
  return html`<section class="card" aria-label="Progress" ${running ? html`hx-get="/deliveries/replays/${id}?part=1" hx-trigger="every 1s" hx-swap="outerMorph"` : ''}>
    ${endOf(job)} ${chosen(query, count)}
    <progress max="${Math.max(1, count)}" value="${Math.min(count, replayed + failed)}">${replayed + failed} of ${count}</progress>
    ${facts([
      ['Replayed', `${number(replayed)} of ${number(count)}`],
      ['Changed something', number(changed)],
      ['Failed', failed === 0 ? '0' : badge(number(failed), 'bad')],
      [
        'Started',
        html`${time(startedAt)}${endedAt === undefined ? '' : html` <span class="soft">took ${duration(Date.parse(endedAt) - Date.parse(startedAt))}</span>`}`,
      ],
    ])}
    ${failuresView(failures)} ${changesView(changes)} ${changed > changes.length ? html`<p class="soft">${changes.length} of ${number(changed)} changes are shown; the pages of the requests have all of it.</p>` : ''}
    <div class="inline actions">
      ${running && !stopping ? html`<form method="post" action="/deliveries/replays/${id}/stop"><button class="danger">Stop</button></form>` : ''}
      <a class="button quiet" href="${backTo(query)}">${count === 1 ? 'To the delivery' : 'To the deliveries'}</a>
    </div>
  </section>`
}

function endOf({ state, stopping, replayed, changed, failed, problem: why }: ReplayJob): Markup {
  switch (state) {
    case 'running':
      return html`<h2>${stopping ? 'Stopping…' : 'Replaying…'}</h2><noscript><p class="soft">Reload this page to see how far it is.</p></noscript>`
    case 'done':
      return failed > 0
        ? problem(
            `${number(replayed)} replayed, ${number(failed)} failed. Those that failed are as they were; why stands below.`,
          )
        : notice(`${number(replayed)} replayed, ${number(changed)} changed something.`)
    case 'stopped':
      return problem(`Stopped after ${number(replayed)}. What was replayed stays; replay again to do the rest.`)
    case 'broken':
      return problem(
        `Broke off after ${number(replayed)}: ${why ?? ''}. Replay again to do the rest: it is safe to repeat.`,
      )
    default:
      return state satisfies never
  }
}

const ends: Record<ReplayJob['state'], Tone> = { running: '', done: 'good', stopped: 'warn', broken: 'bad' }

function replaysTable(all: readonly ReplayJob[]): Markup {
  return table({
    label: 'Replays',
    columns: [
      { head: 'Started' },
      { head: 'How it is' },
      { head: 'Replayed', kind: 'number' },
      { head: 'Changed', kind: 'number' },
      { head: 'Failed', kind: 'number' },
      { head: 'Who' },
    ],
    rows: all.map(({ id, startedAt, state, replayed, failed, changed, count, actor }) => ({
      id,
      cells: [
        html`<a href="/deliveries/replays/${id}">${moment(startedAt)}</a>`,
        badge(state, failed > 0 && state === 'done' ? 'bad' : ends[state]),
        `${number(replayed)} of ${number(count)}`,
        number(changed),
        failed === 0 ? '0' : badge(number(failed), 'bad'),
        foreign(actor, 40),
      ],
    })),
    empty: 'Nothing has been replayed by the console in the time that is kept (RETENTION_DAYS).',
  })
}

function lost(): Markup {
  return html`<section class="card">${problem('There is no such replay: it was pruned after RETENTION_DAYS, or the link was cut short.')}
    <p>What was done stays done. The <a href="/audit">audit</a> has how it ended; a replay is safe to repeat.</p></section>`
}
