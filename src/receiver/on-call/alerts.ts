import type { Logger } from '../../platform/logger.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, type SharedTime } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { callDeadlineMs } from '../fetching/source-client.ts'
import { clockTime, duration } from './figures.ts'

const issues = columnsOf(onCall.issues)
const i = columnsOf(onCall.issues, 'i')

const retryPause = { baseMs: 2000, capMs: 300_000 }

/** The lease of a notice, for statements with the alias `i`. Its claims count its posts. */
const lease = leaseOf('i', {
  key: { id: onCall.issues.id },
  due_at: onCall.issues.tell_at,
  claims: onCall.issues.tell_tries,
})

export type AlertDeps = {
  db: Database
  clock: () => Date
  time: SharedTime
  logger: Logger
  fetch: typeof globalThis.fetch
  /** ALERT_WEBHOOK_URL. Without it, no notice is posted. */
  url: string | undefined
  /** The installation: the host of WEBHOOK_PUBLIC_URL. */
  from: string
  signal: AbortSignal
}

const told = ['id', 'severity', 'text', 'untold', 'tell_tries', 'opened_at', 'closed_at'] as const
type UntoldIssue = RowOf<typeof onCall.issues, (typeof told)[number]>

/**
 * Posts one notice: an issue opened, became worse or closed. One replica claims the notice and posts it. A failed post
 * is repeated later, up to eight posts in all. A later change of the issue replaces the notice.
 */
export async function tellOnce(deps: AlertDeps): Promise<{ more: boolean }> {
  const { db, time, logger, url, from } = deps
  if (url === undefined) return { more: false }
  const issue = await claimUntold(db, time())
  if (!issue) return { more: false }
  const failure = await post(deps, url, textOf(issue, from, new Date(issue.now)))
  const facts = { issue_id: Number(issue.id), event: issue.untold, tries: issue.tell_tries }
  // After the last try, the console still shows the issue.
  const isOver = failure === undefined || issue.tell_tries >= 8
  const pauseMs = jitteredPauseMs(issue.tell_tries, retryPause, Math.random)
  const tryLater = sql`${issues.tell_at} = ${later(time(), pauseMs / 1000)}`
  await endClaim(db, issue, isOver ? sql`${issues.untold} = null` : tryLater)
  if (failure === undefined) logger.info(facts, 'a notice of an issue was posted')
  else if (isOver)
    logger.error({ ...facts, failure }, 'the alert webhook did not accept a notice, which is not posted again')
  else logger.warn({ ...facts, failure }, 'the alert webhook did not accept a notice, trying again later')
  return { more: true }
}

async function claimUntold(db: Database, now: SQL): Promise<(UntoldIssue & { now: string }) | undefined> {
  // The lease is longer than one post. It is not renewed.
  const rows = await db.execute<UntoldIssue & { now: string }>(sql`
    update mediadock.issues i set ${lease.claim(now, 30)}
    where ${i.id} = (
      select ${i.id} from mediadock.issues i where ${i.untold} is not null and ${lease.isDue(now)}
      order by ${i.tell_at} limit 1 for update skip locked)
    returning ${list(i, ...told)}, ${now} as now`)
  return rows[0]
}

/** Records the result of a post. An issue that changed meanwhile has another notice and is left alone. */
async function endClaim(db: Database, { id, tell_tries: claims, untold }: UntoldIssue, set: SQL): Promise<void> {
  await db.execute(sql`
    update mediadock.issues i set ${set} where ${lease.isHeld({ id, claims })} and ${i.untold} = ${untold}`)
}

/** Posts a notice. Returns the reason of a failure, without the address, which contains a secret. */
async function post({ fetch, signal }: AlertDeps, url: string, text: string): Promise<string | undefined> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ text }),
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(callDeadlineMs)]),
    })
    // The body is not read: it could be endless.
    await response.body?.cancel()
    return response.ok ? undefined : `answered ${response.status}`
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') return `no answer within ${callDeadlineMs / 1000} s`
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    return cause instanceof Error && 'code' in cause ? String(cause.code) : 'no connection'
  }
}

const events = { opened: '', worsened: 'worse: ', closed: 'over: ' } as const

type ToldIssue = Pick<UntoldIssue, 'severity' | 'text' | 'untold' | 'opened_at' | 'closed_at'>

/** The line of a notice in Slack's format, escaped so that foreign text is neither markup nor a mention. */
export function textOf({ severity, text, untold, opened_at, closed_at }: ToldIssue, from: string, now: Date): string {
  const opened = new Date(opened_at)
  const until = closed_at === null ? now : new Date(closed_at)
  const since =
    untold === 'opened'
      ? ''
      : ` (since ${clockTime(opened.toISOString(), now)} UTC${untold === 'closed' ? `, for ${duration((until.getTime() - opened.getTime()) / 1000)}` : ''})`
  // The advice is out of date, so a closed issue is reported by its first sentence.
  const told = untold === 'closed' ? text.split(/(?<=\.) /, 1).join('') : text
  const line = `[${untold === 'closed' ? 'closed' : severity}] mediadock ${from}: ${untold === null ? '' : events[untold]}${told}${since}`
  return line.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

/** Posts one notice that Postgres is away, without using Postgres. A failed post is logged. */
export async function tellAway(deps: AlertDeps, { since, words }: { since: Date; words: string }): Promise<void> {
  const { clock, logger, url, from } = deps
  if (url === undefined) return
  const away = `Postgres cannot be used: ${words}. Webhooks are answered 503, and the provider sends them again.`
  const opened_at = since.toISOString()
  const issue: ToldIssue = { severity: 'critical', text: away, untold: 'opened', opened_at, closed_at: null }
  const failure = await post(deps, url, textOf(issue, from, clock()))
  if (failure !== undefined) logger.error({ failure }, 'the notice that Postgres cannot be used could not be posted')
}
