import { Router } from 'express'
import { html } from 'hono/html'
import { withDeadline } from '../../platform/deadline.ts'
import { type Markup, action, linkTo, moment, table, time, type Cells } from '../../platform/pages/parts.ts'
import { auditedRun } from '../api/reconciler.ts'
import { defaultSourceName } from '../domain/source.ts'
import { countOverdue } from '../gauges/overdue.ts'
import { readingOptions } from '../on-call/reading.ts'
import { readWithin } from '../queries/deadline.ts'
import { listReconcileRuns, readReconciler, type ReconcileRunRow, type ReconcilerState } from '../queries/reconciler.ts'
import { readFailingSources, type FailingSource } from '../queries/trouble.ts'
import { readWaitingSubmits, type WaitingSubmits } from '../submitting/generations.ts'
import { badge, duration, foreign, number, problem } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'

const path = '/reconciler'

const about = 'Polls the provider for results that no webhook brought, and completes incomplete results.'

/** Half an hour of runs every 30 s. `GET /api/reconciler/runs` lists older ones. */
const shownRuns = 60

export function reconcilerRoutes(console: ConsoleDeps): Router {
  const { db, settings } = console
  const router = Router()
  router.get(path, async (_req, res) => {
    const options = await readingOptions(console)
    const { state, failing, ...counted } = await readWithin(db, async (tx) => ({
      state: await readReconciler(tx, options),
      failing: await readFailingSources(tx, options),
      overdue: await countOverdue(tx, options),
      submits: await readWaitingSubmits(tx, options.now),
    }))
    const runs = (await listReconcileRuns(db, { limit: shownRuns })).data
    const body = html`<div data-runs data-live hx-get="${path}" hx-select="[data-runs]" hx-trigger="every 2s, refresh" hx-swap="outerMorph" hx-sync="this:drop">
      <div class="bulk">${action({ path: '/reconciler/run', label: 'Run now' })}<span class="soft">Safe at any time. The row of a run appears when it has ended.</span></div>
      ${state.silent ? silence(state) : ''} ${failing.map((one) => noAnswer(one, settings.generationApiUrl))}
      ${tiles(console, state, counted)}
      <div class="card table-card below-card">${runsTable(runs)}</div></div>`
    sendConsolePage(console, res, { title: 'Reconciler', about, body })
  })
  router.post('/reconciler/run', async (req, res) => {
    // The browser waits 3 s for the end of the run, which continues. Its row and the log record why a run failed.
    await withDeadline(auditedRun(console, req), 3000, 'a run').catch(() => {})
    res.redirect(303, path)
  })
  return router
}

function silence({ last_run, silent_after_seconds }: ReconcilerState): Markup {
  const since =
    last_run === null
      ? `for more than ${duration((silent_after_seconds ?? 0) * 1000)}`
      : html`since ${time(last_run.ended_at)}`
  return problem(
    html`No run of the reconciler has ended on any replica ${since}. Overdue requests that were never polled wait for one. Press Run now. If it fails, look in the log for “reconcile run failed” and check RECONCILE_CRON.`,
  )
}

function noAnswer({ source_name, failing_since, failed, detail }: FailingSource, apiUrl: string): Markup {
  const isOther = source_name !== defaultSourceName
  const last = detail === null ? '' : html`, the last: ${foreign(detail, 200)}`
  return problem(
    html`The ${isOther ? html`source <b>${foreign(source_name)}</b>` : 'provider'} has given no usable answer since ${time(failing_since)}: ${failed === 1 ? 'one call' : `${number(failed)} calls`} in a row failed${last}. Check its status, and that ${isOther ? 'the URL of its API' : html`GENERATION_API_URL (${foreign(apiUrl, 200)})`} is reachable from here. Polls go on: one about every 5 s, and each request within 5 minutes. At the first answer, all requests that wait are polled.`,
  )
}

function tiles(
  { background, clock, settings }: ConsoleDeps,
  { silent_after_seconds, last_run, backlog }: ReconcilerState,
  { overdue, submits }: { overdue: number; submits: WaitingSubmits | undefined },
): Markup {
  const now = clock().getTime()
  const next = background.nextRunAt()
  const { due, due_capped, minutes, incomplete, incomplete_capped } = backlog
  const pollsEnd = due === 0 ? '' : `, ${due_capped ? 'at least' : 'about'} ${Math.max(1, minutes)} min`
  return html`<div class="tiles">
    ${last_run === null ? tile('never', 'no run has ended yet') : tile(`${duration(Math.max(1000, now - Date.parse(last_run.ended_at)))} ago`, 'the last run ended')}
    ${
      silent_after_seconds === null
        ? tile('by hand', html`RECONCILE_CRON (${settings.reconcileCron}) runs rarely, next at ${time(next)}`)
        : tile(
            next === undefined ? '—' : `in ${duration(Math.max(0, next.getTime() - now))}`,
            'the next run of this replica',
          )
    }
    ${tile(number(overdue), html`<a href="/requests?overdue=true">overdue ${overdue === 1 ? 'request' : 'requests'}</a>`)}
    ${tile(`${number(due)}${due_capped ? '+' : ''}`, `${due === 1 ? 'poll' : 'polls'} due now${pollsEnd}`)}
    ${submits === undefined ? '' : submitsTile(submits)}
    ${tile(`${number(incomplete)}${incomplete_capped ? '+' : ''}`, html`incomplete ${incomplete === 1 ? 'result' : 'results'}${completing(backlog)}`)}
  </div>`
}

function submitsTile({
  submits,
  oldest: { idempotency_key: key, last_error: error, seconds },
}: WaitingSubmits): Markup {
  const oldest = html`<a href="${linkTo('/search', { q: key })}">the oldest</a> for ${duration(seconds * 1000)}`
  const last = error === null ? '' : html`, last error: ${foreign(error)}`
  return tile(number(submits), html`${submits === 1 ? 'submit waits' : 'submits wait'} for an answer, ${oldest}${last}`)
}

function completing({ incomplete, per_minute, complete_by }: ReconcilerState['backlog']): Markup | string {
  if (incomplete === 0) return ''
  if (complete_by === null) return ', completed once the provider answers'
  return html`, ${number(per_minute)} a minute, the last one at ${time(complete_by)} or later`
}

function tile(value: string, label: string | Markup): Markup {
  return html`<div class="tile"><b>${value}</b><span>${label}</span></div>`
}

function runsTable(runs: readonly ReconcileRunRow[]): Markup {
  return table({
    label: 'Runs',
    columns: [
      'Started',
      { head: 'Trigger', kind: 'minor' },
      'Outcome',
      'What it did',
      { head: 'Duration', kind: 'number' },
    ],
    rows: runs.map(runRow),
    empty: 'The reconciler has not run yet.',
  })
}

function runRow(run: ReconcileRunRow): Cells {
  const { started_at, ended_at, trigger, outcome, idle_runs, duration_ms, error } = run
  const did =
    idle_runs > 1
      ? html`<span class="soft">nothing due in ${number(idle_runs)} runs, until ${moment(ended_at)}</span>`
      : counts(run)
  return [
    moment(started_at),
    trigger === 'manual' ? 'by hand' : 'clock',
    outcomeOf(run),
    html`<div class="detail">${did}${error === null ? '' : html`<div class="soft">${foreign(error, 1000)}</div>`}</div>`,
    outcome === 'idle' ? html`<span class="soft">—</span>` : duration(duration_ms),
  ]
}

/** The outcome of a run as a badge. It is ok only if no poll failed and none was postponed. */
function outcomeOf({ outcome, scanned, failed, postponed }: ReconcileRunRow): Markup {
  if (outcome === 'error') return badge('error', 'bad')
  if (scanned === 0) return badge('idle', '')
  if (failed > 0) return badge('failed polls', 'bad')
  return postponed > 0 ? badge('postponed', 'warn') : badge('ok', 'good')
}

/** The work of a run in words. */
function counts(run: ReconcileRunRow): string {
  const { scanned, landed, running, not_found, failed, postponed, rate_limited, error } = run
  if (scanned === 0) return error === null ? 'nothing due' : ''
  const polled = scanned - postponed
  const known = polled - landed - running - not_found - failed
  const parts: [count: number, words: string][] = [
    [polled, polled === 1 ? 'request polled' : 'requests polled'],
    [landed, 'landed'],
    [known, 'known already'],
    [running, 'not finished at the provider'],
    [not_found, 'unknown to the provider'],
    [failed, 'failed'],
    [postponed, `postponed${rate_limited > 0 ? ` (${number(rate_limited)} by 429)` : ''}`],
  ]
  return parts
    .filter(([count]) => count > 0)
    .map(([count, words]) => `${number(count)} ${words}`)
    .join(', ')
}
