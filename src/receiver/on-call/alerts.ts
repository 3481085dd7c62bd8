import type { Logger } from '../../platform/logger.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { clockTime, duration } from './figures.ts'

const issues = columnsOf(onCall.issues)

/** After these it is not tried again; the console has it still. */
const maxTries = 8
const retryPause = { baseMs: 2000, capMs: 300_000 }
const deadlineMs = 10_000
/** Longer than the deadline: whoever claimed it has ended by then. */
const leaseSeconds = 30

export type AlertDeps = {
  db: Database
  clock: () => Date
  logger: Logger
  fetch: typeof globalThis.fetch
  /** Where it is told; undefined: nowhere. */
  url: string | undefined
  /** Which installation speaks: the host of WEBHOOK_PUBLIC_URL. */
  from: string
  signal: AbortSignal
}

const told = ['id', 'severity', 'text', 'untold', 'tell_tries', 'opened_at', 'closed_at'] as const
type Told = RowOf<typeof onCall.issues, (typeof told)[number]>

/**
 * Tells one thing that has not been told yet: that an issue opened, became worse or closed. Whichever
 * replica claims it posts it, within a deadline, and tries again a few times; what came later
 * meanwhile overtakes it. Away from everything that receives and lands.
 */
export async function tellOnce({ db, clock, logger, fetch, url, from, signal }: AlertDeps): Promise<{ more: boolean }> {
  if (url === undefined) return { more: false }
  const issue = await claimUntold(db, clock())
  if (!issue) return { more: false }
  const failure = await post({ fetch, url, body: { text: textOf(issue, from, clock()) }, signal })
  const facts = { issue_id: Number(issue.id), event: issue.untold, tries: issue.tell_tries }
  if (failure === undefined) {
    await settle(db, issue, undefined)
    logger.info(facts, 'an issue was told')
  } else if (issue.tell_tries >= maxTries) {
    await settle(db, issue, undefined)
    logger.error({ ...facts, failure }, 'an issue could not be told, it is not tried again')
  } else {
    const pauseMs = jitteredPauseMs(issue.tell_tries, retryPause, Math.random)
    await settle(db, issue, new Date(clock().getTime() + pauseMs))
    logger.warn({ ...facts, failure }, 'an issue could not be told, trying again later')
  }
  return { more: true }
}

async function claimUntold(db: Database, now: Date): Promise<Told | undefined> {
  const at = sql`${now.toISOString()}::timestamptz`
  const rows = await db.execute<Told>(sql`
    update mediadock.issues set ${issues.tell_at} = ${at} + make_interval(secs => ${leaseSeconds}), ${issues.tell_tries} = ${issues.tell_tries} + 1
    where ${issues.id} = (
      select ${issues.id} from mediadock.issues where ${issues.untold} is not null and ${issues.tell_at} <= ${at}
      order by ${issues.tell_at} limit 1 for update skip locked)
    returning ${list(issues, ...told)}`)
  return rows[0]
}

/** Told, given up, or at another time; unless it became something else meanwhile. */
async function settle(db: Database, { id, untold, tell_tries }: Told, again: Date | undefined): Promise<void> {
  await db.execute(sql`
    update mediadock.issues set ${issues.untold} = case when ${again !== undefined}::boolean then ${issues.untold} end,
      ${issues.tell_at} = coalesce(${again?.toISOString() ?? null}::timestamptz, ${issues.tell_at})
    where ${issues.id} = ${id}::bigint and ${issues.untold} = ${untold} and ${issues.tell_tries} = ${tell_tries}::int`)
}

type Post = { fetch: typeof globalThis.fetch; url: string; body: { text: string }; signal: AbortSignal }

/** Why it was not taken; undefined where it was. The address has a secret in it and is in no message. */
async function post({ fetch, url, body, signal }: Post): Promise<string | undefined> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
    })
    // Whatever it says is not read: it could be without end.
    await response.body?.cancel()
    return response.ok ? undefined : `answered ${response.status}`
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') return `no answer within ${deadlineMs / 1000} s`
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    return cause instanceof Error && 'code' in cause ? String(cause.code) : 'no connection'
  }
}

const events = { opened: '', worsened: 'worse: ', closed: 'over: ' } as const

/** One line, as services that take Slack's shape show it: nothing in it may be taken for markup or a mention of everybody. */
export function textOf({ severity, text, untold, opened_at, closed_at }: Told, from: string, now: Date): string {
  const opened = new Date(opened_at)
  const until = closed_at === null ? now : new Date(closed_at)
  const since =
    untold === 'opened'
      ? ''
      : ` (since ${clockTime(opened.toISOString(), now)} UTC${untold === 'closed' ? `, for ${duration((until.getTime() - opened.getTime()) / 1000)}` : ''})`
  const line = `[${untold === 'closed' ? 'closed' : severity}] mediadock ${from}: ${untold === null ? '' : events[untold]}${text}${since}`
  return line.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

/** Tells that Postgres is away, once and without it; that it could not be told is in the log. */
export async function tellAway(
  { clock, logger, fetch, url, from, signal }: AlertDeps,
  { since, words }: { since: Date; words: string },
): Promise<void> {
  if (url === undefined) return
  const text = textOf(
    {
      id: '',
      severity: 'critical',
      text: awayWords(words),
      untold: 'opened',
      tell_tries: 1,
      opened_at: since.toISOString(),
      closed_at: null,
    },
    from,
    clock(),
  )
  const failure = await post({ fetch, url, body: { text }, signal })
  if (failure !== undefined) logger.error({ failure }, 'that Postgres is away could not be told')
}

export function awayWords(words: string): string {
  return `Postgres is away, so deliveries are answered 503 and come again: ${words}`
}
