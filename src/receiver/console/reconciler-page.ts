import { setTimeout as delay } from 'node:timers/promises'
import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import { sendPage, type Markup } from '../../platform/pages/console-page.ts'
import { readingOptions } from '../on-call/reading.ts'
import { readWithin } from '../queries/deadline.ts'
import { parseFilters, times } from '../queries/filters.ts'
import type { Page } from '../queries/page.ts'
import {
  findReconcileRun,
  listReconcileRuns,
  reconcilerState,
  runListSchema,
  runOutcomes,
  type ReconcileRunRow,
  type ReconcilerState,
} from '../queries/reconciler.ts'
import { readProviderState, type ProviderState } from '../queries/trouble.ts'
import { runTriggers } from '../reconciling/reconcile-runs.ts'
import { audited } from '../upkeep/audit.ts'
import { tryRead } from './parts/failures.ts'
import { filterBar } from './parts/filter-bar.ts'
import {
  action,
  badge,
  duration,
  foreign,
  moment,
  notice,
  number,
  pager,
  problem,
  table,
  time,
  type Row,
} from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { linkTo, queryOf, without, type Query } from './parts/url.ts'
import { counts, failure, noAnswer, outcomeOf, path, requests, runWords, silence } from './reconciler-words.ts'

/** What the address has besides the filters: the run that is shown, and since when one is waited for. */
const looks = ['open', 'awaited']
const looksSchema = z.object({
  open: z
    .string()
    .regex(/^\d{1,15}$/, 'must be the number of a run')
    .transform(Number)
    .optional(),
  awaited: times.since,
})

/** A browser does not wait longer for the end of a run; the run goes on. */
const waitMs = 3000
/** No run takes longer than its deadline of ten minutes. */
const overdueMs = 630_000

export function reconcilerRoutes(console: ConsoleDeps): Router {
  const { db, background, clock, logger } = console
  const router = Router()
  router.get(path, async (req, res) => {
    const query = queryOf(req)
    const { open, awaited } = parseFilters(looksSchema, query)
    const options = await readingOptions(console)
    const [state, provider] = await readWithin(
      db,
      async (tx) => [await reconcilerState(tx, options), await readProviderState(tx, options.now)] as const,
    )
    const read = await tryRead(logger, () =>
      listReconcileRuns(db, parseFilters(runListSchema, without(query, ...looks))),
    )
    const opened = open === undefined ? undefined : await readWithin(db, (tx) => findReconcileRun(tx, open))
    const body = html`${head(state)} ${awaited === undefined ? '' : await awaitedRun(console, awaited)} ${opened ? runWords(opened) : ''} ${stateView(console, state, provider)}
      <div class="below-card">${bar(console, query, read.ok ? undefined : read.problem)}</div>
      ${read.ok ? html`<div class="card table-card">${runsTable(read.value, query)}</div> ${pager(path, query, read.value.next_cursor)}` : ''}`
    sendConsolePage(console, res, { title: 'Reconciler', status: read.status, body })
  })
  router.get('/reconciler/awaited', async (req, res) => {
    const { awaited } = parseFilters(looksSchema, queryOf(req))
    sendPage(res, await awaitedRun(console, awaited ?? clock().toISOString()))
  })
  router.post('/reconciler/run', async (req, res) => {
    const since = clock().toISOString()
    const ended = audited(
      console,
      { via: 'console', actor: actorOf(req), action: 'reconcile_run', detailOf: ({ run }) => run },
      background.reconcileNow,
    )
    const waited = new AbortController()
    // How a run failed stands in its row and in the log.
    const first = await Promise.race([
      ended.catch(() => undefined),
      delay(waitMs, undefined, { signal: waited.signal, ref: false }),
    ]).finally(() => waited.abort())
    res.redirect(303, linkTo(path, first ? { open: String(first.id) } : { awaited: since }))
  })
  return router
}

function head({ backlog }: ReconcilerState): Markup {
  const would =
    backlog.due === 0
      ? 'Nothing is due at this moment: a run polls what has become due until then.'
      : `A run now polls ${backlog.due_capped ? 'at least ' : ''}${requests(backlog.due)} that ${backlog.due === 1 ? 'is' : 'are'} due.`
  return html`<div class="head"><h1>Reconciler</h1><span class="soft">Polls the provider for results that no webhook brought, and completes incomplete ones. Each run polls everything that is due.</span></div>
    <div class="bulk">${action({ path: '/reconciler/run', label: 'Run now' })}<span class="soft">${would} It is safe: what is known already stays as it is.</span></div>`
}

/** How it is in words, then in numbers. */
function stateView(
  { background, clock, settings }: ConsoleDeps,
  { silent, silent_after_seconds, last_run, last_working_run, backlog }: ReconcilerState,
  provider: ProviderState,
): Markup {
  const now = clock().getTime()
  const next = background.nextRunAt()
  const [due, calls] = [backlog.due, settings.fetchRatePerMinute]
  return html`${silent ? silence(last_run, silent_after_seconds) : last_run?.outcome === 'error' ? failure(last_run) : ''} ${noAnswer(provider)}
    <div class="tiles">
      ${tile(last_run === null ? 'never' : `${duration(Math.max(1000, now - Date.parse(last_run.ended_at)))} ago`, last_run === null ? 'no run has ended yet' : html`the last run ended: ${outcomeOf(last_run)}`)}
      ${tile(next === undefined ? '—' : `in ${duration(Math.max(0, next.getTime() - now))}`, html`the next run of this replica: ${time(next)}`)}
      ${tile(`${number(due)}${backlog.due_capped ? '+' : ''}`, due === 1 ? 'request is due' : 'requests are due')}
      ${due === 0 ? '' : tile(`${backlog.due_capped ? 'at least' : 'about'} ${Math.max(1, backlog.minutes)} min`, html`to poll them all, with ${number(calls)} calls a minute for each key, beside the submits of the last minute`)}
      ${tile(`${number(backlog.incomplete)}${backlog.incomplete_capped ? '+' : ''}`, html`${backlog.incomplete === 1 ? 'result is' : 'results are'} not complete yet; ${number(backlog.per_minute)} a minute can be completed with the calls of all keys${completeBy(backlog)}`)}
    </div>
    ${last_working_run === null || last_working_run.scanned === 0 ? '' : html`<p class="soft">The last run that had something to do: ${time(last_working_run.started_at)}, ${counts(last_working_run)}.</p>`}`
}

function completeBy({ complete_by, incomplete_capped }: ReconcilerState['backlog']): Markup | '' {
  return complete_by === null
    ? ''
    : html`, all of them ${incomplete_capped ? 'not before' : 'by about'} ${time(complete_by)}`
}

/** The answer to "run now" while the run goes on; fetched again until it has ended. */
async function awaitedRun({ db, clock }: ConsoleDeps, since: string): Promise<Markup> {
  const [newest] = (await listReconcileRuns(db, { trigger: 'manual', limit: 1 })).data
  if (newest && newest.ended_at >= since) {
    return html`<div>${runWords(newest)}<p><a href="${linkTo(path, { open: String(newest.id) })}">Show it in the list</a></p></div>`
  }
  if (clock().getTime() - Date.parse(since) > overdueMs)
    return problem(
      html`The run that was started by hand at ${time(since)} has left no row: the receiver was stopped meanwhile, or Postgres was away. Run it again.`,
    )
  return html`<div hx-get="${linkTo('/reconciler/awaited', { awaited: since })}" hx-trigger="every 1s" hx-swap="outerMorph">
    ${notice(html`The run that was started by hand at ${time(since)} still goes on; what it did will stand here.`)}
    <noscript><p class="soft">Reload this page to see whether it has ended.</p></noscript>
  </div>`
}

function runsTable({ data }: Page<ReconcileRunRow>, query: Query): Markup {
  return table({
    label: 'Runs',
    columns: [
      { head: 'Started' },
      { head: 'Trigger' },
      { head: 'Outcome' },
      { head: 'Scanned', kind: 'number' },
      { head: 'Landed', kind: 'number' },
      { head: 'Running', kind: 'minor number' },
      { head: 'Not found', kind: 'minor number' },
      { head: 'Failed', kind: 'number' },
      { head: 'Postponed', kind: 'minor number' },
      { head: '429s', kind: 'number' },
      { head: 'Duration', kind: 'number' },
      { head: 'Error' },
    ],
    rows: data.map((run) => runRow(run, query)),
    empty: 'No run matches: the reconciler has not run yet, or the filters leave none.',
  })
}

function runRow(run: ReconcileRunRow, query: Query): Row {
  const {
    id,
    started_at,
    ended_at,
    trigger,
    outcome,
    idle_runs,
    scanned,
    landed,
    running,
    not_found,
    failed,
    postponed,
    rate_limited,
    duration_ms,
    error,
  } = run
  const idle = outcome === 'idle'
  return {
    id: String(id),
    cells: [
      html`<a href="${linkTo(path, { ...query, awaited: undefined, open: String(id) })}">${moment(started_at)}</a>`,
      trigger === 'manual' ? 'by hand' : 'clock',
      idle
        ? html`${badge('idle', '')} <span class="soft">${number(idle_runs)} ${idle_runs === 1 ? 'run' : 'runs'}, until ${time(ended_at)}</span>`
        : outcomeOf(run),
      ...[scanned, landed, running, not_found].map((count) => quietZero(count)),
      failed > 0 ? badge(number(failed), 'bad') : quietZero(0),
      postponed > 0 ? badge(number(postponed), 'warn') : quietZero(0),
      rate_limited > 0 ? badge(number(rate_limited), 'warn') : quietZero(0),
      idle ? quiet('—') : duration(duration_ms),
      error === null ? quiet('—') : html`<div class="detail">${foreign(error, 200)}</div>`,
    ],
  }
}

/** What is not nothing catches the eye. */
function quietZero(count: number): Markup {
  return count === 0 ? quiet('0') : html`${number(count)}`
}

function quiet(text: string): Markup {
  return html`<span class="soft">${text}</span>`
}

function bar({ clock }: ConsoleDeps, query: Query, wrong: string | undefined): Markup {
  const fields = [
    { name: 'outcome', label: 'Outcome', options: runOutcomes },
    { name: 'trigger', label: 'Trigger', options: runTriggers },
  ]
  return filterBar({ path, query: without(query, 'awaited'), fields, now: clock(), problem: wrong })
}

function tile(value: string, label: string | Markup): Markup {
  return html`<div class="tile"><b>${value}</b><span>${label}</span></div>`
}
