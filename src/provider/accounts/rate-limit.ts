import type { Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'

/** Requests per minute (spec, Limits) of one key, and of all keys of an account. */
export type RateLimits = { perKey: number; perAccount: number }

/** The minute of the spec (Limits). */
const windowMs = 60_000

/**
 * The result of counting calls in a window: calls granted to this statement, calls in the window afterwards, and the
 * age of the oldest.
 */
export type Taken = { granted: number; used: number; oldest_age_ms: number }

/** The rate limit shown to a caller: the key's or the account's, the one with fewer calls left. */
export type RateWindow = {
  limit: number
  remaining: number
  /** After this time, at least one call more than `remaining` is possible. */
  resetSeconds: number
  exceeded: boolean
}

/** The window after the n-th call (from 1) of those that one statement counted together. */
export function windowAfter({ granted, used, oldest_age_ms: ageMs }: Taken, n: number, limit: number): RateWindow {
  const remaining = Math.max(limit - (used - granted + Math.min(n, granted)), 0)
  const resetSeconds = Math.ceil((windowMs - ageMs) / 1000)
  return { limit, remaining, resetSeconds: Math.min(Math.max(resetSeconds, 1), windowMs / 1000), exceeded: n > granted }
}

/** Returns the account's window if it is exceeded or has fewer calls left, else the key's. */
export function narrower(ofKey: RateWindow, ofAccount: RateWindow): RateWindow {
  return ofAccount.exceeded || ofAccount.remaining < ofKey.remaining ? ofAccount : ofKey
}

/**
 * SQL that counts calls. `wanted` has an id and a number of calls. Grants as many as leave no more than `limit` in any
 * 60 s. A row stores the calls of the last 60 s, newest first. Calls within one second share the time of the last one,
 * so none expires early. Rows are locked in order, so that two statements never deadlock.
 */
export function takeCalls(wanted: SQL, limit: number, now: SQL): SQL {
  const at = millisecondsOf(now)
  return sql`
    insert into provider.rate_windows as w (id, at_ms, calls, used, granted)
    select a.id, array[${at}], array[least(a.n, ${limit}::int)], least(a.n, ${limit}::int), least(a.n, ${limit}::int)
    from (${wanted}) as a (id, n) order by a.id
    on conflict (id) do update set (at_ms, calls, used, granted) = (
      select
        case when more.granted = 0 then kept.at_ms
          when kept.at_ms[1] / 1000 >= ${at} / 1000 then array[greatest(kept.at_ms[1], ${at})] || kept.at_ms[2:]
          else array[${at}] || kept.at_ms end,
        case when more.granted = 0 then kept.calls
          when kept.at_ms[1] / 1000 >= ${at} / 1000 then array[kept.calls[1] + more.granted] || kept.calls[2:]
          else array[more.granted] || kept.calls end,
        kept.used + more.granted, more.granted
      from (
        -- Drops old calls, and calls a window or more in the future: a clock set back blocks for two windows at most.
        select array_agg(c.at_ms) as at_ms, array_agg(c.n) as calls, coalesce(sum(c.n), 0)::int as used
        from unnest(w.at_ms, w.calls) as c (at_ms, n)
        where c.at_ms > ${at} - ${windowMs}::int and c.at_ms < ${at} + ${windowMs}::int
      ) kept cross join lateral (select least(excluded.granted, greatest(${limit}::int - kept.used, 0)) as granted) more
    )
    returning w.id, w.granted, json_build_object(
      'granted', w.granted, 'used', w.used, 'oldest_age_ms', ${at} - w.at_ms[cardinality(w.at_ms)]) as taken`
}

function millisecondsOf(now: SQL): SQL {
  return sql`(extract(epoch from ${now}) * 1000)::bigint`
}

/** Sets the three headers of the window (decisions, RateLimit headers). Throws 429 if the call exceeds it. */
export function applyRateLimit(res: Response, { limit, remaining, resetSeconds, exceeded }: RateWindow): void {
  res.set({
    'RateLimit-Limit': String(limit),
    'RateLimit-Remaining': String(remaining),
    'RateLimit-Reset': String(resetSeconds),
  })
  if (!exceeded) return
  const message = `more than ${limit} requests in a minute, try again in ${resetSeconds} s`
  throw new HttpError(429, 'rate_limit_exceeded', message, { headers: { 'Retry-After': String(resetSeconds) } })
}

/** Deletes at most `limit` windows without calls for an hour. Returns their number. */
export async function pruneIdleWindows(db: Database, limit: number, now: SQL): Promise<number> {
  const rows = await db.execute(sql`
    delete from provider.rate_windows where id = any (array(
      select id from provider.rate_windows where at_ms[1] < ${millisecondsOf(later(now, -3600))}
      limit ${limit}::int for update skip locked
    )) returning 1`)
  return rows.length
}
