import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { time } from '../../platform/pages/parts.ts'
import { defaultSourceName } from '../domain/source.ts'
import type { ReconcileRunRow } from '../queries/reconciler.ts'
import type { FailingSource } from '../queries/trouble.ts'
import { badge, duration, foreign, notice, number, problem } from './parts/parts.ts'
import { linkTo } from './parts/url.ts'

// Sentences about runs of the reconciler and the answers of the provider.

export const path = '/reconciler'

export function silence(last: ReconcileRunRow | null, silentAfterSeconds: number | null): Markup {
  const since =
    last === null ? `for more than ${duration((silentAfterSeconds ?? 0) * 1000)}` : html`since ${time(last.ended_at)}`
  return problem(
    html`No run of the reconciler has ended on any replica ${since}. Overdue requests that were never polled wait for one. Press Run now. If it fails, look in the log for “reconcile run failed” and check RECONCILE_CRON.`,
  )
}

export function noAnswer({ source_name, failing_since, failed, detail }: FailingSource, apiUrl: string): Markup {
  const isOther = source_name !== defaultSourceName
  const last = detail === null ? '' : html`, the last: ${foreign(detail, 200)}`
  return problem(
    html`The ${isOther ? html`source <b>${foreign(source_name)}</b>` : 'provider'} has given no usable answer since ${time(failing_since)}: ${failed === 1 ? 'one call' : `${number(failed)} calls`} in a row failed${last}. Check its status, and that ${isOther ? 'the URL of its API' : html`GENERATION_API_URL (${foreign(apiUrl, 200)})`} is reachable from here. Polls go on: one about every 5 s, and each request within 5 minutes. At the first answer, all requests that wait are polled.`,
  )
}

export function failure({ id, ended_at, error }: ReconcileRunRow): Markup {
  return problem(
    html`The last run failed at ${time(ended_at)}: “${foreign(error, 300)}”. The next one tries again. <a href="${linkTo(path, { open: String(id) })}">Show it</a>`,
  )
}

export function runWords(run: ReconcileRunRow): Markup {
  const { id, trigger, started_at, outcome, error, failed, duration_ms } = run
  const which = html`Run ${id} (${trigger === 'manual' ? 'by hand' : 'by the clock'}, ${time(started_at)}${outcome === 'idle' ? '' : `, ${duration(duration_ms)}`})`
  if (outcome === 'error')
    return problem(html`${which} failed: “${foreign(error, 1000)}”. Results that it landed before stay.`)
  if (outcome === 'idle')
    return notice(
      html`${which} had nothing to do. Its row stands for ${number(run.idle_runs)} such runs, until ${time(run.ended_at)}.`,
    )
  return (failed > 0 ? problem : notice)(html`${which}: ${counts(run)}.`)
}

/** The work of a run in words. */
export function counts(run: ReconcileRunRow): string {
  const { scanned, landed, running, not_found, failed, postponed, rate_limited } = run
  if (scanned === 0) return 'no poll was scheduled by then'
  const polled = scanned - postponed
  const unchanged = polled - landed - running - not_found - failed
  const parts = [
    polled > 0 ? `${requests(polled)} polled` : '',
    landed > 0 ? `${number(landed)} landed` : '',
    unchanged > 0 ? `${number(unchanged)} known already` : '',
    running > 0 ? `${number(running)} not finished at the provider` : '',
    not_found > 0 ? `${number(not_found)} unknown to the provider` : '',
    failed > 0 ? `${number(failed)} failed` : '',
    postponed > 0
      ? `${polled > 0 ? number(postponed) : requests(postponed)} postponed${rate_limited > 0 ? ` (${number(rate_limited)} by 429)` : ''}`
      : '',
  ]
  return parts.filter((part) => part !== '').join(', ')
}

/** The outcome of a run as a badge. It is ok only if no poll failed and none was postponed. */
export function outcomeOf(run: ReconcileRunRow): Markup {
  const { outcome, scanned, failed, postponed } = run
  if (outcome === 'error') return badge('error', 'bad')
  if (outcome === 'idle') return badge('idle', '')
  if (scanned === 0) return badge('nothing polled', '')
  const answered = scanned - failed - postponed
  if (failed > 0) return badge(answered > 0 ? `${number(failed)} failed` : 'no answer', 'bad')
  if (postponed > 0) return badge(answered > 0 ? `${number(postponed)} postponed` : 'postponed', 'warn')
  return badge('ok', 'good')
}

export function requests(count: number): string {
  return count === 1 ? '1 request' : `${number(count)} requests`
}
