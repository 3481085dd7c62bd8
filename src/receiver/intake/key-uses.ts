import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { type Column, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as onCall from '../domain/on-call-schema.ts'

const keyUses = columnsOf(onCall.keyUses)
const u = columnsOf(onCall.keyUses, 'u')

export type KeyUse = { keyName: string; at: Date; matches: number }

/** SQL: the statement that stores which keys matched, one row per key. It can be part of a `with`. */
export function notingKeyUses(uses: readonly KeyUse[]): SQL {
  // Sorted by key, so that two writers cannot deadlock.
  const keys = [...Map.groupBy(uses, ({ keyName }) => keyName)].sort(([a], [b]) => (a < b ? -1 : 1))
  const times = keys.map(([, some]) => some.map(({ at }) => at.getTime() / 1000))
  return sql`
    insert into mediadock.key_uses as u (${list(keyUses, 'key_name', 'first_match_at', 'last_match_at', 'matches')})
    select key_name, to_timestamp(first), to_timestamp(last), matches from unnest(
      ${sql.param(keys.map(([name]) => name))}::text[], ${sql.param(times.map((some) => Math.min(...some)))}::float8[],
      ${sql.param(times.map((some) => Math.max(...some)))}::float8[],
      ${sql.param(keys.map(([, some]) => some.reduce((sum, { matches }) => sum + matches, 0)))}::bigint[]
    ) as used (key_name, first, last, matches)
    on conflict (key_name) do update set matches = ${u.matches} + excluded.matches,
      first_match_at = least(${u.first_match_at}, excluded.first_match_at),
      last_match_at = greatest(${u.last_match_at}, excluded.last_match_at)`
}

const unknownSeconds = 600
const idleSeconds = 3600

/**
 * SQL condition: the time range in which a key can have matched, which spares filters by key a scan of everything. The
 * log is written with a delay, so the range is generous: a key that is not known here can only have matched just now,
 * and one that matched within the hour may match at any moment.
 */
export function whenKeyMatched(at: Column, keyName: string): SQL {
  const use = (what: SQL) => sql`(select ${what} from mediadock.key_uses where ${keyUses.key_name} = ${keyName})`
  return sql`${at} >= coalesce(${use(sql`${keyUses.first_match_at}`)}, now()) - make_interval(secs => ${unknownSeconds})
    and ${at} <= coalesce(${use(sql`case when ${keyUses.last_match_at} < now() - make_interval(secs => ${idleSeconds})
      then ${keyUses.last_match_at} + make_interval(secs => ${idleSeconds}) end`)}, 'infinity')`
}

export async function noteKeyUses(db: Database, uses: readonly KeyUse[]): Promise<void> {
  if (uses.length > 0) await db.execute(notingKeyUses(uses))
}
