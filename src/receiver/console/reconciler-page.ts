import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { withDeadline } from '../../platform/deadline.ts'
import { sendPage, type Markup } from '../../platform/pages/console-page.ts'
import { action, moment, table, time, type Row } from '../../platform/pages/parts.ts'
import { auditedCall } from '../api/audited-call.ts'
import { readingOptions } from '../on-call/reading.ts'
import { readWithin } from '../queries/deadline.ts'
import { parseFilters, times } from '../queries/filters.ts'
import type { Page } from '../queries/page.ts'
import {
  findReconcileRun,
  listReconcileRuns,
  readReconciler,
  runListSchema,
  runOutcomes,
  type ReconcileRunRow,
  type ReconcilerState,
} from '../queries/reconciler.ts'
import { readFailingSources, type FailingSource } from '../queries/trouble.ts'
import { countOverdue } from '../reconciling/due.ts'
import { runTriggers } from '../reconciling/reconcile-runs.ts'
import { countWaitingSubmits } from '../submitting/generations.ts'
import { listView } from './parts/list-view.ts'
import { duration, foreign, notice, number, problem } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { linkTo, queryOf, without, type Query } from './parts/url.ts'
import { counts, failure, noAnswer, outcomeOf, path, requests, runWords, silence } from './reconciler-words.ts'

/** Parameters that are not filters: the run to show, and the time from which a run is awaited. */
const looks = ['open', 'awaited']
const looksSchema = z.object({
  open: z
    .string()
    .regex(/^\d{1,15}$/, 'must be the number of a run')
    .transform(Number)
    .optional(),
  awaited: times.since,
})

const about = 'Polls the provider for results that no webhook brought, and completes incomplete results.'

/** No run takes longer than its deadline of ten minutes. */
const overdueMs = 630_000

export function reconcilerRoutes(console: ConsoleDeps): Router {
  const { db, background, clock } = console
  const router = Router()
  router.get(path, async (req, res) => {
    const query = queryOf(req)
    const { open, awaited } = parseFilters(looksSchema, query)
    const options = await readingOptions(console)
    const { state, failing, overdue, submits } = await readWithin(db, async (tx) => ({
      state: await readReconciler(tx, options),
      failing: await readFailingSources(tx, options),
      overdue: await countOverdue(tx, options),
      submits: await countWaitingSubmits(tx),
    }))
    const opened = open === undefined ? undefined : await readWithin(db, (tx) => findReconcileRun(tx, open))
    const fields = [
      { name: 'outcome', label: 'Outcome', options: runOutcomes },
      { name: 'trigger', label: 'Trigger', options: runTriggers },
    ]
    const bar = { path, query: without(query, 'awaited'), fields }
    const read = async () => ({
      listed: await listReconcileRuns(db, parseFilters(runListSchema, without(query, ...looks))),
    })
    const runs = await listView(
      console,
      bar,
      read,
      ({ listed }) => html`<div class="card table-card">${runsTable(listed, query)}</div>`,
    )
    const body = html`${runNow(state, overdue, failing)} ${awaited === undefined ? '' : await awaitedRun(console, awaited)}
      ${opened ? runWords(opened) : ''} ${stateView(console, state, { failing, overdue, submits })}
      <div class="below-card">${runs.body}</div>`
    sendConsolePage(console, res, { title: 'Reconciler', about, status: runs.status, body })
  })
  router.get('/reconciler/awaited', async (req, res) => {
    const { awaited } = parseFilters(looksSchema, queryOf(req))
    sendPage(res, await awaitedRun(console, awaited ?? clock().toISOString()))
  })
  router.post('/reconciler/run', async (req, res) => {
    const since = clock().toISOString()
    const work = background.reconcileNow
    const ended = auditedCall(console, req, {
      via: 'console',
      action: 'reconcile_run',
      detailOf: ({ run }) => run,
      work,
    })
    // The browser waits 3 s for the end of the run, which continues. Its row and the log record why a run failed.
    const first = await withDeadline(ended, 3000, 'a run').catch(() => undefined)
    res.redirect(303, linkTo(path, first ? { open: String(first.id) } : { awaited: since }))
  })
  return router
}

/** The button that starts a run, with what the run would do. */
function runNow({ backlog }: ReconcilerState, overdue: number, failing: readonly FailingSource[]): Markup {
  const late = overdue === 0 ? '' : html` <a href="/requests?overdue=true">${requests(overdue)} overdue</a>.`
  const isWaiting = failing.length > 0 && overdue > 0
  const would =
    backlog.due === 0
      ? isWaiting
        ? `${overdue === 1 ? 'The overdue request waits' : 'Overdue requests wait'} for ${overdue === 1 ? 'its' : 'their'} next poll, and a run now would not poll ${overdue === 1 ? 'it' : 'them'}.`
        : 'A run now polls nothing: no poll is scheduled by now.'
      : `A run now polls ${backlog.due_capped ? 'at least ' : ''}${requests(backlog.due)} that ${backlog.due === 1 ? 'is' : 'are'} due.`
  return html`<div class="bulk">${action({ path: '/reconciler/run', label: 'Run now', tone: backlog.due === 0 && isWaiting ? 'quiet' : '' })}<span class="soft">${would}${late} A run is safe at any time: confirmed results stay, and the provider's result decides the others.</span></div>`
}

/** The state of the reconciler in words, then in numbers. */
function stateView(
  { background, clock, settings }: ConsoleDeps,
  { silent, silent_after_seconds, last_run, last_working_run, backlog }: ReconcilerState,
  { failing, overdue, submits }: { failing: readonly FailingSource[]; overdue: number; submits: number },
): Markup {
  const now = clock().getTime()
  const next = background.nextRunAt()
  const [due, calls] = [backlog.due, settings.fetchRatePerMinute]
  return html`${silent ? silence(last_run, silent_after_seconds) : last_run?.outcome === 'error' ? failure(last_run) : ''} ${failing.map((one) => noAnswer(one, settings.generationApiUrl))}
    <div class="tiles">
      ${tile(last_run === null ? 'never' : `${duration(Math.max(1000, now - Date.parse(last_run.ended_at)))} ago`, last_run === null ? 'no run has ended yet' : html`the last run ended: ${outcomeOf(last_run)}`)}
      ${nextRun(next, { now, isRare: silent_after_seconds === null, cron: settings.reconcileCron })}
      ${
        due === 0 && failing.length > 0 && overdue > 0
          ? tile(
              number(overdue),
              `overdue ${overdue === 1 ? 'request waits' : 'requests wait'} for ${overdue === 1 ? 'its' : 'their'} next poll`,
            )
          : tile(`${number(due)}${backlog.due_capped ? '+' : ''}`, due === 1 ? 'poll to make now' : 'polls to make now')
      }
      ${due === 0 ? '' : tile(`${backlog.due_capped ? 'at least' : 'about'} ${Math.max(1, backlog.minutes)} min`, html`to poll them all, at ${number(calls)} calls a minute for each key`)}
      ${submits === 0 ? '' : tile(number(submits), `${submits === 1 ? 'submit waits' : 'submits wait'} for an answer`)}
      ${tile(`${number(backlog.incomplete)}${backlog.incomplete_capped ? '+' : ''}`, html`${backlog.incomplete === 1 ? 'result is' : 'results are'} incomplete${failing.length > 0 ? '' : completing(backlog)}`)}
    </div>
    ${last_working_run === null || last_working_run.scanned === 0 ? '' : html`<p class="soft">Last run with work to do: ${time(last_working_run.started_at)}, ${counts(last_working_run)}.</p>`}`
}

/** The tile of the next run: the time until it, or `by hand` where RECONCILE_CRON runs rarely. */
function nextRun(
  next: Date | undefined,
  { now, isRare, cron }: { now: number; isRare: boolean; cron: string },
): Markup {
  if (isRare) return tile('by hand', html`RECONCILE_CRON (${cron}) runs rarely, next at ${time(next)}`)
  const pause = next === undefined ? '—' : `in ${duration(Math.max(0, next.getTime() - now))}`
  return tile(pause, html`the next run of this replica: ${time(next)}`)
}

function completing({ per_minute, complete_by }: ReconcilerState['backlog']): Markup {
  const end = complete_by === null ? '' : html`, the last one at ${time(complete_by)} or later`
  return html`; ${number(per_minute)} a minute can be completed${end}`
}

/** The answer to "Run now" while the run continues, fetched again until it has ended. */
async function awaitedRun({ db, clock }: ConsoleDeps, since: string): Promise<Markup> {
  const [newest] = (await listReconcileRuns(db, { trigger: 'manual', limit: 1 })).data
  if (newest && newest.ended_at >= since) {
    return html`<div>${runWords(newest)}<p><a href="${linkTo(path, { open: String(newest.id) })}">Show it in the list</a></p></div>`
  }
  if (clock().getTime() - Date.parse(since) > overdueMs)
    return problem(
      html`The run started by hand at ${time(since)} left no row. The receiver was stopped, or Postgres was unreachable. Run it again.`,
    )
  return html`<div hx-get="${linkTo('/reconciler/awaited', { awaited: since })}" hx-trigger="every 1s" hx-swap="outerMorph">
    ${notice(html`The run started by hand at ${time(since)} continues. Its result will appear here.`)}
    <noscript><p class="soft">Reload this page to see its result.</p></noscript>
  </div>`
}

function runsTable({ data }: Page<ReconcileRunRow>, query: Query): Markup {
  return table({
    label: 'Runs',
    columns: [
      'Started',
      { head: 'Trigger', kind: 'minor' },
      'Outcome',
      'What it did',
      { head: 'Duration', kind: 'number' },
    ],
    rows: data.map((run) => runRow(run, query)),
    empty: 'No run matches these filters, or the reconciler has not run yet.',
  })
}

function runRow(run: ReconcileRunRow, query: Query): Row {
  const { id, started_at, ended_at, trigger, outcome, idle_runs, duration_ms, error } = run
  const idle = outcome === 'idle'
  const did = idle
    ? html`<span class="soft">nothing polled in ${number(idle_runs)} ${idle_runs === 1 ? 'run' : 'runs'}, until ${moment(ended_at)}</span>`
    : counts(run)
  return {
    id: String(id),
    cells: [
      html`<a href="${linkTo(path, { ...query, awaited: undefined, open: String(id) })}">${moment(started_at)}</a>`,
      trigger === 'manual' ? 'by hand' : 'clock',
      outcomeOf(run),
      html`<div class="detail">${did}${error === null ? '' : html`<div class="soft">${foreign(error, 200)}</div>`}</div>`,
      idle ? html`<span class="soft">—</span>` : duration(duration_ms),
    ],
  }
}

function tile(value: string, label: string | Markup): Markup {
  return html`<div class="tile"><b>${value}</b><span>${label}</span></div>`
}
