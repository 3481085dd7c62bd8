import { randomUUID } from 'node:crypto'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import { leaseSeconds } from '../../platform/postgres/lease-keeper.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import { maxCounted } from '../domain/limits.ts'
import { addChange } from '../feeding/add-change.ts'
import { mediaCopies } from './archive-schema.ts'

const { request_id, kind, position } = mediaCopies
export const copyLease = leaseOf('c', { ...mediaCopies, key: { request_id, kind, position } })
const now = postgresTime()

/** A claimed copy. `is_promised`: by the promise of its source, the link has not ended yet. */
export type Copy = RowOf<
  typeof mediaCopies,
  'request_id' | 'kind' | 'position' | 'url' | 'claims' | 'unended' | 'tries'
> &
  Record<'source_name' | 'key_name', string | null> & { is_promised: boolean }

export type CopyFault = 'gone' | 'refused' | 'unreachable' | 'store'

/** Claims due copies: first those whose links end, soonest first, then the longest due. */
export async function claimCopies(
  db: Database,
  { limit, now = postgresTime() }: { limit: number; now?: SQL },
): Promise<Copy[]> {
  const due = (only: SQL, order: SQL) => sql`
      select c.request_id, c.kind, c.position from mediadock.media_copies c
      where c.state = 'waiting' and ${copyLease.isDue(now)} and ${only}
      order by ${order} limit ${limit} for update skip locked`
  // A link that has ended is tried in its ordinary turn, so that lost media hold up none that can be saved.
  // The count of claims without an end stays within a smallint.
  return db.execute<Copy>(sql`
    with expiring as materialized (${due(sql`c.expires_at > ${now}`, sql`c.expires_at`)}),
    others as materialized (${due(sql`(c.expires_at > ${now}) is not true`, sql`c.due_at`)}),
    -- Reads the others only as far as the expiring ones leave places.
    due as materialized (select * from expiring union all select * from others limit ${limit})
    update mediadock.media_copies c set ${copyLease.claim(now, lasts(sql`c.unended`))},
      unended = least(c.unended + 1, 1000)
    from due where (c.request_id, c.kind, c.position) = (due.request_id, due.kind, due.position)
    returning c.request_id, c.kind, c.position, c.url, c.claims, c.unended, c.tries,
      coalesce(c.expires_at > ${now}, false) as is_promised,
      -- One look-up per copy, also with outdated statistics.
      (select r.source_name from mediadock.requests r where r.request_id = c.request_id),
      (select r.key_name from mediadock.requests r where r.request_id = c.request_id)`)
}

/** Renews leases. Returns the copies that this process still holds. */
export function renewCopies(db: Database, held: readonly Copy[]): Promise<Copy[]> {
  const seconds = lasts(sql`c.unended - 1`)
  return copyLease.renew(db, held, { now, seconds, only: sql`c.state = 'waiting'` })
}

function lasts(unendedBefore: SQL): SQL {
  // The lease doubles with each consecutive claim that was not ended, up to this many times. So a file that kills
  // processes does so less and less often.
  return sql`${leaseSeconds}::int * 2 ^ least(${unendedBefore}, 6)`
}

/** Gives back a copy that was not begun, or was cut. Any replica may claim it at once. */
export async function giveBack(db: Database, copy: Copy): Promise<void> {
  await copyLease.write(db, copy, sql`${copyLease.giveBack(now)}, unended = 0`)
}

export type CopyFailure = { fault: CopyFault; trouble: string }

/** Ends a claim. The next try is after the pause, or where the link ends before, after half of the time left. */
export async function putOffCopy(
  db: Database,
  copy: Copy,
  { fault, trouble, pauseSeconds, counts }: CopyFailure & { pauseSeconds: number; counts: boolean },
): Promise<void> {
  const after = later(now, pauseSeconds)
  const next = sql`case when c.expires_at > ${now} and c.expires_at < ${after}
    then ${now} + (c.expires_at - ${now}) / 2 else ${after} end`
  await copyLease.write(
    db,
    copy,
    sql`${copyLease.giveBack(next)}, unended = 0,
      tries = c.tries + ${counts ? 1 : 0}, fault = ${fault}, trouble = ${trouble}`,
  )
}

/** Gives up a copy and writes the reason to its media. */
export async function giveUpCopy(db: Database, copy: Copy, { fault, trouble }: CopyFailure): Promise<void> {
  await retryConflicts(() =>
    db.execute(sql`
      with given_up as (
        update mediadock.media_copies c set ${copyLease.end}, state = 'failed', tries = c.tries + 1,
          fault = ${fault}, trouble = ${trouble}, ended_at = ${now}
        where ${copyLease.isHeld(copy)} returning c.request_id, c.kind, c.position, c.url
      )
      update mediadock.media m set archive_error = ${`${fault}: ${trouble}`} from given_up g
      where (m.request_id, m.kind, m.position, m.url) = (g.request_id, g.kind, g.position, g.url)`),
  )
}

/** Counts the copies that wait, up to `maxCounted`. */
export async function countWaitingCopies(db: Database): Promise<number> {
  const rows = await db.execute<{ waiting: number }>(sql`
    select count(*)::int as waiting from (select from mediadock.media_copies
      where state = 'waiting' limit ${maxCounted}) w`)
  return one(rows, 'counting media to archive').waiting
}

export type ArchivedFile = { sha256: string; bytes: number; contentType: string }

/** Registers a file to be stored. Returns its incarnation; undefined while the same file is being deleted. */
export function wantFile(db: Database, file: ArchivedFile): Promise<string | undefined> {
  // Longer than storing a file may take until `endCopy`. After that it is checked whether a copy refers to the file.
  return register(db, file, later(now, 900), sql`where f.removing_at is null`)
}

/** Schedules a check of a file that may be stored without a reference, even if its row is gone. */
export async function doubtFile(db: Database, file: ArchivedFile): Promise<void> {
  await register(db, file, now, sql``)
}

async function register(db: Database, { sha256, bytes, contentType }: ArchivedFile, lookAt: SQL, unless: SQL) {
  const [registered] = await retryConflicts(() =>
    db.execute<{ incarnation: string }>(sql`
      insert into mediadock.archived_files as f (sha256, bytes, content_type, incarnation, look_at)
      values (${sha256}, ${bytes}::bigint, ${contentType}, ${randomUUID()}::uuid, ${lookAt})
      on conflict (sha256) do update set look_at = excluded.look_at ${unless} returning f.incarnation`),
  )
  return registered?.incarnation
}

export type Stored = ArchivedFile & { incarnation: string; archivedUrl: string; hasThumbnail: boolean }

/**
 * Ends a copy whose file is stored: writes the columns of its media, and a change for the feed. Returns false if the
 * claim was lost, the media was removed, or the file was deleted meanwhile, even if it was registered again.
 */
export async function endCopy(db: Database, copy: Copy, file: Stored): Promise<boolean> {
  const statement = sql`
    with request as materialized (
      select request_id, status, media_complete from mediadock.requests
      where request_id = ${copy.request_id}::uuid for update
    ),
    mine as materialized (
      select 1 from request, mediadock.media_copies c where ${copyLease.isHeld(copy)} for update of c
    ),
    filed as (
      update mediadock.archived_files f set stored_at = coalesce(f.stored_at, ${now}), look_at = null,
        has_thumbnail = f.has_thumbnail or ${file.hasThumbnail}::boolean
      where f.sha256 = ${file.sha256} and f.incarnation = ${file.incarnation}::uuid and f.removing_at is null
        and exists (select from mine)
      returning f.sha256
    ),
    ended as (
      update mediadock.media_copies c set ${copyLease.end}, state = 'archived', sha256 = filed.sha256,
        fault = null, trouble = null, ended_at = ${now}
      from filed where ${copyLease.isHeld(copy)}
      returning c.request_id, c.kind, c.position, c.url, c.sha256
    ),
    written as (
      update mediadock.media m set archived_url = ${file.archivedUrl}, bytes = ${file.bytes}::bigint,
        content_type = ${file.contentType}, sha256 = ended.sha256, archived_at = ${now}, archive_error = null
      from ended
      where (m.request_id, m.kind, m.position, m.url) = (ended.request_id, ended.kind, ended.position, ended.url)
      returning m.request_id
    ),
    changed as (${addChange(now, sql`request where exists (select from written)`)})
    select sha256 from ended`
  const ended = await retryConflicts(() => db.execute(statement))
  return ended.length === 1
}
