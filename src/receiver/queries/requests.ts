import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { and, eq, isNull, not, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { requestStatusSchema } from '../../wire/schemas.ts'
import { sandboxOf } from '../domain/environment.ts'
import { polls } from '../domain/on-call-schema.ts'
import { defaultPageItems, hasTime, maxPageBytes } from '../domain/page-limits.ts'
import { pollOutcomes } from '../domain/poll-endings.ts'
import { media, requests } from '../domain/schema.ts'
import { isOverdue, type StuckAfter } from '../reconciling/due.ts'
import { d, r } from './aliases.ts'
import { readWithin } from './deadline.ts'
import type { Paging, RequestFilters } from './filters.ts'
import {
  afterCursor,
  equals,
  given,
  limitOf,
  maxUrlCharacters,
  microsOf,
  newestFirst,
  sourceNameOf,
  toPage,
  withIso,
  within,
  type Order,
  type Page,
} from './page.ts'
import { type AnyId, foundRows, searchedRows, uuidRange } from './search.ts'

const m = columnsOf(media, 'm')
const p = columnsOf(polls, 'p')

export const mediaKindSchema = z.enum(['image', 'video', 'audio'])

export const requestSchema = z
  .object({
    id: z.guid(),
    request_id: z.guid(),
    source_name: z.string().describe('The source that the request belongs to.'),
    external_id: z.string().describe("The source's own id of the request."),
    status: requestStatusSchema,
    progress: z.int().nullable().describe('0 to 100: the highest that a poll has seen; 100 once COMPLETED.'),
    queue_position: z.int().nullable().describe("The place in the provider's queue, if known."),
    overdue: z.boolean().describe('Without a terminal state for longer than STUCK_AFTER_SECONDS.'),
    model: z.string().nullable(),
    key_name: z.string().nullable(),
    sandbox: z.boolean().nullable(),
    metadata: z.unknown().describe("The submitter's metadata."),
    media_items: z.int(),
    media_complete: z.boolean().describe('True once all of the result is known.'),
    media_gone: z.int().describe('Media that the provider no longer serves, without a copy in the archive.'),
    first_media: z.object({ kind: mediaKindSchema, url: z.string(), sha256: z.string().nullable() }).nullable(),
    cost: z.number().nullable(),
    error_code: z.string().nullable(),
    error_message: z.string().nullable(),
    source: z.enum(['webhook', 'reconciler']).nullable(),
    tracked_at: z.iso.datetime(),
    created_at: z.iso.datetime().nullable().describe("The provider's time."),
    completed_at: z.iso.datetime().nullable().describe("The provider's time."),
    landed_at: z.iso.datetime().nullable(),
    webhook_at: z.iso.datetime().nullable().describe('When its first stored delivery arrived, if any.'),
    contradiction: z.boolean().describe('One of its deliveries contradicts the stored result.'),
    confirmed_at: z.iso.datetime().nullable().describe("When the provider's own result was taken over."),
    polls: z.int(),
    polled_at: z.iso.datetime().nullable().describe('The time of the last poll.'),
    poll_outcome: z.enum(pollOutcomes).nullable().describe('The outcome of the last poll.'),
    poll_detail: z.string().nullable().describe('Details of that outcome.'),
    next_poll_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'Request' })
export type Request = z.infer<typeof requestSchema>

type RequestRow = Request & { micros: string; matched: boolean; cut: boolean }

const order: Order = { at: r.tracked_at, id: r.request_id }

/** Lists requests by the time of tracking, newest first. With a metadata filter, a page may be empty but not last. */
export async function listRequests(
  db: Database,
  { limit = defaultPageItems, cursor, ...filters }: RequestFilters & AnyId & Paging,
  overdue: StuckAfter,
): Promise<Page<Request>> {
  const condition = given(filters.metadata, (metadata) => sql`${r.metadata} @> ${metadata}::jsonb`)
  const chosen = and(matching(filters, overdue), lookedFor(filters, cursor), afterCursor(cursor, order)) ?? sql`true`
  const most = condition ? searchedRows : limitOf({ limit })
  const which = sql`where ${chosen} order by ${newestFirst(order)} limit ${most}`
  const rows = await readWithin(db, (tx) =>
    tx.execute<RequestRow>(selectRequests(which, overdue, { condition, limit })),
  )
  return toPage(rows, { limit }, toRequest)
}

/** Reads one request; undefined if it is not known. */
export async function findRequest(tx: Executor, requestId: string, overdue: StuckAfter): Promise<Request | undefined> {
  const [row] = await tx.execute<RequestRow>(selectRequests(sql`where ${r.request_id} = ${requestId}::uuid`, overdue))
  return row && toRequest(row)
}

/** SQL condition: the newest row of `polls` is later than the poll that the request's own columns describe. */
const isLater = sql`polled.polled_at > coalesce(${r.polled_at}, '-infinity')`

/** SQL: the ids of the page as an array. The sub-select runs once; a join would copy the array for each step. */
const idsWanted = sql`(select ids from wanted)`

/** The length of a page, and a condition that must read the metadata of each row. */
type PageWalk = { condition?: SQL | undefined; limit?: number }

/**
 * SQL: CTEs that choose the requests of a page. `walked` goes from one to the next, so that it ends with the row that
 * fills the page. Where `condition` is not true, `matched` is false; the last such row is where the next page
 * begins. `offset 0` makes Postgres evaluate each lateral part only once.
 */
const chosenRequests = (which: SQL, { condition = sql`true`, limit = 1 }: PageWalk) => sql`
    wanted as materialized (
      select array(select ${r.request_id} from mediadock.requests r ${which}) as ids
    ),
    walked as (
      select 0 as steps, 0 as found, 0::bigint as bytes, null::uuid as request_id, false as matched,
        null::jsonb as readable
      union all
      select p.steps + 1, p.found + h.matched::int,
        p.bytes + case when h.matched
          then octet_length(concat(i.readable, ${r.error_message}, ${r.model})) else 0 end,
        ${r.request_id}, h.matched, i.readable
      from (
        select * from walked where steps < cardinality(${idsWanted}) and found < ${limit}::int and bytes < ${maxPageBytes}::int
          and (steps = 0 or ${sql.raw(hasTime)})
      ) p
      join mediadock.requests r on ${r.request_id} = ${idsWanted}[p.steps + 1]
      cross join lateral (select coalesce(${condition}, false) as matched offset 0) h
      cross join lateral (
        select case when h.matched then mediadock.readable_metadata(${r.metadata}) end as readable offset 0
      ) i
    ),
    chosen as (
      select r.*, w.readable, w.matched, w.steps = max(w.steps) over () and w.steps < cardinality(${idsWanted}) as cut
      from walked w join mediadock.requests r on ${r.request_id} = w.request_id
      where w.matched or w.steps = (select max(steps) from walked)
    )`

/** SQL: the requests with their media, deliveries and polls, which are looked up only for the rows on the page. */
function selectRequests(which: SQL, overdue: StuckAfter, walk: PageWalk = {}): SQL {
  return sql`
    with recursive ${chosenRequests(which, walk)}
    select ${r.request_id} as id, ${r.request_id}, ${sourceNameOf(r.source_name)} as source_name,
      coalesce(${r.external_id}, ${r.request_id}::text) as external_id, ${microsOf(order.at)} as micros, ${r.status},
      case when ${r.status} = 'COMPLETED' then 100 else ${r.progress} end as progress,
      case when ${r.status} = 'IN_QUEUE' then ${r.queue_position} end as queue_position,
      ${isOverdue(overdue)} as overdue,
      ${list(r, 'model', 'key_name')}, ${sandboxOf('r')} as sandbox, r.readable as metadata, r.matched,
      (select count(*)::int from mediadock.media m where ${m.request_id} = ${r.request_id}) as media_items,
      (select count(*)::int from mediadock.media m where ${m.request_id} = ${r.request_id}
        and ${m.archive_error} like 'gone%') as media_gone,
      ${list(r, 'media_complete', 'error_code', 'error_message', 'source')}, ${r.cost}::float8, first.media as first_media,
      ${list(r, 'tracked_at', 'created_at', 'completed_at', 'landed_at', 'confirmed_at', 'polls')},
      webhooks.webhook_at, webhooks.contradiction, r.cut,
      least(${r.next_poll_at}, ${r.doubt_poll_at}) as next_poll_at,
      greatest(${r.polled_at}, polled.polled_at) as polled_at,
      case when ${isLater} then polled.outcome else ${r.poll_outcome} end as poll_outcome,
      case when ${isLater} then polled.detail else ${r.poll_detail} end as poll_detail
    from chosen r
    left join lateral (
      select min(${d.received_at}) as webhook_at,
        coalesce(bool_or('contradiction' = any(${d.flags})), false) as contradiction
      from mediadock.deliveries d where ${d.request_id} = ${r.request_id}
    ) webhooks on true
    left join lateral (
      select jsonb_build_object('kind', ${m.kind}, 'url', left(${m.url}, ${maxUrlCharacters}::int),
        'sha256', ${m.sha256}) as media
      from mediadock.media m where ${m.request_id} = ${r.request_id} order by ${m.kind}, ${m.position} limit 1
    ) first on true
    left join lateral (
      -- The newest row of the log of polls, which also records polls that landed a result.
      select ${p.polled_at}, ${p.outcome},
        case when ${p.outcome} in ('unreachable', 'invalid') then ${p.detail} end as detail
      from mediadock.polls p where ${p.request_id} = ${r.request_id} order by ${p.polled_at} desc limit 1
    ) polled on true
    order by ${newestFirst(order)}`
}

function matching(wanted: RequestFilters & AnyId, when: StuckAfter): SQL | undefined {
  return and(
    given(wanted.status, statusIs),
    equals(r.model, wanted.model),
    equals(r.key_name, wanted.key_name),
    given(wanted.external_id, (id) =>
      isOneOf(sql`(${chosenId} where ${requests.external_id} = ${id} limit ${foundRows})`),
    ),
    given(wanted.overdue, (choice) => isOrNot(choice, isOverdue(when))),
    given(wanted.contradiction, (choice) => isOrNot(choice, isContradicted)),
    given(wanted.anyId, idBegins),
    given(wanted.ids, (ids) => sql`${r.request_id} = any(${sql.param(ids)}::uuid[])`),
    within(order.at, wanted),
  )
}

function isOrNot(choice: 'true' | 'false', condition: SQL): SQL {
  return choice === 'true' ? condition : not(condition)
}

/** Filters without an index: looked for among the newest requests before `until` and the cursor. */
function lookedFor(
  { source_name, sandbox, complete, metadata, ...range }: RequestFilters,
  cursor?: string,
): SQL | undefined {
  const isComplete = sql`(${r.landed_at} is not null and (${r.media_complete} or ${r.status} <> 'COMPLETED'))`
  const wanted = and(
    given(source_name, (name) => sql`${sourceNameOf(r.source_name)} = ${name}`),
    given(sandbox, (choice) => sql`${sandboxOf('r')} = ${choice === 'true'}::boolean`),
    given(complete, (choice) => isOrNot(choice, isComplete)),
  )
  if (wanted === undefined && metadata === undefined) return undefined
  const searched = and(within(order.at, range), afterCursor(cursor, order)) ?? sql`true`
  return and(
    wanted,
    sql`${r.tracked_at} >= coalesce((
      select ${r.tracked_at} from mediadock.requests r where ${searched}
      order by ${newestFirst(order)} offset ${searchedRows} limit 1), '-infinity')`,
  )
}

/** SQL condition: a delivery of the request contradicts the stored result. Uses the index of flagged deliveries. */
const isContradicted = sql`${r.request_id} = any(array(
  select request_id from (
    select ${d.request_id}, ${d.flags} from mediadock.deliveries d where ${d.flags} <> '{}'
    order by ${d.received_at} desc, ${d.id} desc limit ${searchedRows}
  ) flagged where 'contradiction' = any(flags) and request_id is not null))`

const chosenId = sql`select ${requests.request_id} from ${requests}`

function idBegins(text: string): SQL {
  const ranges = uuidRange(text).map(
    (range) => sql`(${chosenId} where ${requests.request_id} ${range} limit ${foundRows})`,
  )
  return isOneOf(sql.join(ranges, sql` union all `))
}

/** SQL condition: the ids are looked up first, since the planner would otherwise read all requests by time. */
function isOneOf(ids: SQL): SQL {
  return sql`${r.request_id} = any(array(${ids}))`
}

/** SQL condition by status. Open states use the index of open requests. */
function statusIs(status: Request['status']): SQL | undefined {
  const open = status === 'IN_QUEUE' || status === 'IN_PROGRESS'
  return and(eq(r.status, status), open ? isNull(r.landed_at) : undefined)
}

function toRequest({ micros: _micros, matched: _matched, cut: _cut, ...row }: RequestRow): Request {
  const times = ['tracked_at', 'created_at', 'completed_at', 'landed_at', 'confirmed_at', 'webhook_at'] as const
  return withIso(row, ...times, 'polled_at', 'next_poll_at')
}
