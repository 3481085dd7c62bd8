import { Router, type Request } from 'express'
import { html } from 'hono/html'
import { actorOf } from '../../pages/access.ts'
import { sendPage, type Markup } from '../../pages/console-page.ts'
import { fieldsOf, readForm } from '../../pages/form.ts'
import { gone, unknown } from '../../receiver/api/operation.ts'
import { parseNotification } from '../../receiver/domain/delivery.ts'
import { countDeliveries } from '../../receiver/queries/deliveries.ts'
import { findDelivery } from '../../receiver/queries/delivery-detail.ts'
import { deliveryFiltersSchema, InvalidFilterError, parseFilters, type DeliveryFilters } from '../../receiver/queries/filters.ts'
import { changesView } from '../parts/diff.ts'
import { badge, confirmation, duration, facts, foreign, notice, number, problem, shortId, time } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { linkTo, queryOf, without, type Query } from '../parts/url.ts'
import { createReplayJobs, type ReplayJob } from './replay-jobs.ts'
import { failuresView, mayTryByItself, previewView, tryForm, trySample } from './replay-preview.ts'

export function replayRoutes(console: ConsoleDeps): Router {
  const { db, signal } = console
  const jobs = createReplayJobs(console)
  const router = Router()

  router.get('/deliveries/replay', async (req, res) => {
    const query = chosenBy(req)
    const filters = filtersOf(query)
    const count = await countDeliveries(db, filters)
    const unreadable = count === 1 && (await isUnreadable(console, filters))
    sendConsolePage(console, res, {
      title: 'Replay',
      body: questionPage({ query, count, unreadable, preview: tryForm(query, { byItself: mayTryByItself(req) }) }),
    })
  })
  // It locks what it tries, for a moment: nothing that an address alone may set off.
  router.post('/deliveries/replay/preview', readForm, async (req, res) => {
    const query = without(fieldsOf(req))
    const filters = filtersOf(query)
    const count = await countDeliveries(db, filters)
    const preview = previewView({ count, sample: await trySample(console, filters, AbortSignal.any([signal, gone(res)])) })
    if (req.get('hx-request') !== undefined) return sendPage(res, preview)
    return sendConsolePage(console, res, { title: 'Replay', body: questionPage({ query, count, unreadable: false, preview }) })
  })
  router.post('/deliveries/replay', readForm, async (req, res) => {
    const query = without(fieldsOf(req))
    const filters = filtersOf(query)
    const count = await countDeliveries(db, filters)
    const job = jobs.start({ query, filters, count, actor: actorOf(req) })
    res.redirect(303, `/deliveries/replays/${job.id}`)
  })
  router.get('/deliveries/replays/:id', (req, res) => {
    const job = jobs.find(req.params.id)
    if (req.query['part'] !== undefined) return sendPage(res, job ? progress(job) : lost())
    const body = html`<h1>Replay</h1>${job ? progress(job) : lost()}`
    return sendConsolePage(console, res, { title: 'Replay', status: job ? 200 : 404, body })
  })
  router.post('/deliveries/replays/:id/stop', (req, res) => {
    if (!jobs.find(req.params.id)) throw unknown(req)
    jobs.stop(req.params.id)
    res.redirect(303, `/deliveries/replays/${req.params.id}`)
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

type ReplayQuestion = { query: Query; count: number; unreadable: boolean; preview: Markup }

function questionPage({ query, count, unreadable, preview }: ReplayQuestion): Markup {
  const what = html`${chosen(query, count)} ${unreadable ? problem('Its bytes cannot be understood today either: a replay leaves it as it is, parked. It can be replayed once this receiver understands such bodies.') : whatWouldBe(count, preview)}`
  const title = count === 1 ? 'Replay one delivery?' : `Replay ${number(count)} deliveries?`
  const label = count === 1 ? 'Replay it' : `Replay ${number(count)}`
  return html`<h1>Replay</h1>
    ${confirmation({ title, what, confirm: count === 0 || unreadable ? undefined : { path: '/deliveries/replay', label, fields: query, key: 'replay' }, back: backTo(query) })}`
}

function whatWouldBe(count: number, preview: Markup): Markup {
  if (count === 0) return html`<p>No delivery is chosen, so there is nothing to replay.</p>`
  return html`<p class="soft">Replaying is safe to repeat: the first terminal state stays, and only the provider's own result overrules a webhook.</p>${preview}`
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
  const { id, state, count, replayed, changed, failed, startedAt, endedAt, changes, failures, query } = job
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
        html`${time(startedAt)}${endedAt === undefined ? '' : html` <span class="soft">took ${duration(endedAt.getTime() - startedAt.getTime())}</span>`}`,
      ],
    ])}
    ${failuresView(failures)} ${changesView(changes)} ${changed > changes.length ? html`<p class="soft">${changes.length} of ${number(changed)} changes are shown; the pages of the requests have all of it.</p>` : ''}
    <div class="inline actions">
      ${running ? html`<form method="post" action="/deliveries/replays/${id}/stop"><button class="danger">Stop</button></form>` : ''}
      <a class="button quiet" href="${backTo(query)}">${count === 1 ? 'To the delivery' : 'To the deliveries'}</a>
    </div>
  </section>`
}

function endOf({ state, replayed, changed, failed, problem: why }: ReplayJob): Markup {
  switch (state) {
    case 'running':
      return html`<h2>Replaying…</h2><noscript><p class="soft">Reload this page to see how far it is.</p></noscript>`
    case 'done':
      return failed > 0
        ? problem(`${number(replayed)} replayed, ${number(failed)} failed. Those that failed are as they were: their attempts tell why.`)
        : notice(`${number(replayed)} replayed, ${number(changed)} changed something.`)
    case 'stopped':
      return problem(`Stopped after ${number(replayed)}. What was replayed stays; replay again to do the rest.`)
    case 'broken':
      return problem(`Broke off after ${number(replayed)}: ${why ?? ''}. Replay again to do the rest: it is safe to repeat.`)
    default:
      return state satisfies never
  }
}

function lost(): Markup {
  return html`<section class="card">${problem('This replay is not known here: it was started on another replica of this receiver, or before the last restart.')}
    <p>What was done stays done. The <a href="/audit">audit</a> has how it ended; a replay is safe to repeat.</p></section>`
}
