import { atMost } from '../../platform/postgres/at-most.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'
import * as archive from './archive-schema.ts'

const c = columnsOf(archive.mediaCopies, 'c')
const copies = columnsOf(archive.mediaCopies)
const m = columnsOf(schema.media, 'm')
const media = columnsOf(schema.media)

/** A copy that is claimed: `claims` fences it, so that only the last claimant ends it. */
export type Copy = {
  requestId: string
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  claims: number
  /** Those in a row that nobody has ended, this one included. */
  unended: number
  tries: number
}

export type CopyFault = 'gone' | 'refused' | 'unreachable' | 'store'

/** Renewed every second while a process holds it; another takes it over soon after that one has died. */
const leaseSeconds = 60
/** It doubles with each claim in a row that nobody ended: what kills whoever copies it does so ever more rarely. */
const maxDoublings = 6
/** Beyond it nothing is counted. */
const maxUnended = 1000

type CopyRow = RowOf<
  typeof archive.mediaCopies,
  'request_id' | 'kind' | 'position' | 'url' | 'claims' | 'unended' | 'tries'
>

/** Claims what is due, the longest due first. */
export async function claimCopies(db: Database, { now, limit }: { now: Date; limit: number }): Promise<Copy[]> {
  const rows = await db.execute<CopyRow>(sql`
    with due as materialized (
      select ${list(copies, 'request_id', 'kind', 'position')} from mediadock.media_copies
      where ${copies.state} = 'waiting' and ${copies.due_at} <= ${now.toISOString()}::timestamptz
      order by ${copies.due_at} limit ${limit} for update skip locked
    )
    update mediadock.media_copies c set ${copies.claims} = ${c.claims} + 1, ${copies.unended} = least(${c.unended} + 1, ${maxUnended}::int),
      ${copies.due_at} = ${leaseEnd(now, sql`${c.unended}`)}
    from due where (${c.request_id}, ${c.kind}, ${c.position}) = (due.request_id, due.kind, due.position)
    returning ${list(c, 'request_id', 'kind', 'position', 'url', 'claims', 'unended', 'tries')}`)
  return rows.map(({ request_id, ...row }) => ({
    requestId: request_id,
    ...row,
  }))
}

/** Keeps what is held; answers which of them are still this process's. */
export async function renewCopies(db: Database, held: readonly Copy[], now: Date): Promise<Copy[]> {
  if (held.length === 0) return []
  const rows = await db.execute<RowOf<typeof archive.mediaCopies, 'request_id' | 'kind' | 'position'>>(sql`
    with held as materialized (
      select * from jsonb_to_recordset(${JSON.stringify(held.map(({ requestId, ...copy }) => ({ request_id: requestId, ...copy })))}::jsonb)
        as h (request_id uuid, kind text, position integer, claims integer) limit ${atMost(held.length)}
    )
    update mediadock.media_copies c set ${copies.due_at} = ${leaseEnd(now, sql`${c.unended} - 1`)}
    from held where (${c.request_id}, ${c.kind}, ${c.position}) = (held.request_id, held.kind, held.position)
      and ${c.claims} = held.claims and ${c.state} = 'waiting'
    returning ${list(c, 'request_id', 'kind', 'position')}`)
  const ours = rows
  const kept = new Set(ours.map(({ request_id, kind, position }) => `${request_id}/${kind}/${position}`))
  return held.filter((copy) => kept.has(keyOfCopy(copy)))
}

/** Gives back what was not begun or was cut: whoever looks next has it at once. */
export async function giveBack(db: Database, copy: Copy, now: Date): Promise<void> {
  await db.execute(sql`
    update mediadock.media_copies c set ${copies.claims} = ${c.claims} + 1, ${copies.unended} = 0, ${copies.due_at} = ${now.toISOString()}::timestamptz where ${ownClaim(copy)}`)
}

export function keyOfCopy({ requestId, kind, position }: Pick<Copy, 'requestId' | 'kind' | 'position'>): string {
  return `${requestId}/${kind}/${position}`
}

function leaseEnd(now: Date, unendedBefore: ReturnType<typeof sql>) {
  return sql`${now.toISOString()}::timestamptz + make_interval(secs => ${leaseSeconds}::int * 2 ^ least(${unendedBefore}, ${maxDoublings}::int))`
}

export type CopyFailure = { fault: CopyFault; trouble: string; now: Date }

/** Ends the claim: it is tried again then; `counts` where that was one of its tries. */
export async function putOffCopy(
  db: Database,
  copy: Copy,
  { fault, trouble, dueAt, counts }: Omit<CopyFailure, 'now'> & { dueAt: Date; counts: boolean },
) {
  await db.execute(sql`
    update mediadock.media_copies c set ${copies.claims} = ${c.claims} + 1, ${copies.unended} = 0, ${copies.due_at} = ${dueAt.toISOString()}::timestamptz, ${copies.tries} = ${c.tries} + ${counts ? 1 : 0},
      ${copies.fault} = ${fault}, ${copies.trouble} = ${trouble}
    where ${ownClaim(copy)}`)
}

/** It is not tried again: the reason stands beside its media, too. */
export async function giveUpCopy(db: Database, copy: Copy, { fault, trouble, now }: CopyFailure): Promise<void> {
  const rows = await untilNotGivingWay(() =>
    db.execute<{ ended: number }>(sql`
      with given_up as (
        update mediadock.media_copies c set ${copies.state} = 'failed', ${copies.tries} = ${c.tries} + 1, ${copies.fault} = ${fault}, ${copies.trouble} = ${trouble},
          ${copies.ended_at} = ${now.toISOString()}::timestamptz
        where ${ownClaim(copy)} returning ${list(c, 'request_id', 'kind', 'position', 'url')}
      ),
      written as (
        update mediadock.media m set ${media.archive_error} = ${`${fault}: ${trouble}`} from given_up g
        where (${m.request_id}, ${m.kind}, ${m.position}, ${m.url}) = (g.request_id, g.kind, g.position, g.url)
      )
      select count(*)::int as ended from given_up`),
  )
  one(rows, `giving up the copy of a media of ${copy.requestId}`)
}

/** Still claimed by whoever claimed it so often. */
export function ownClaim({ requestId, kind, position, claims }: Copy) {
  return sql`${c.request_id} = ${requestId}::uuid and ${c.kind} = ${kind} and ${c.position} = ${position}::int and ${c.claims} = ${claims}::int and ${c.state} = 'waiting'`
}

const maxCounted = 10_000

/** How many media wait to be copied; no more are counted than that. */
export async function countWaitingCopies(db: Database): Promise<number> {
  const rows = await db.execute<{ waiting: number }>(sql`
    select count(*)::int as waiting from (select from mediadock.media_copies where ${copies.state} = 'waiting' limit ${maxCounted}) w`)
  return one(rows, 'counting media to archive').waiting
}
