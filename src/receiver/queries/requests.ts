import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { alias, and, eq, isNull, not, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { requestStatusSchema } from '../../wire/schemas.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { pollOutcomes } from '../domain/poll-outcomes.ts'
import { deliveries, media, requests } from '../domain/schema.ts'
import { isOverdue, type StuckAfter } from '../reconciling/due.ts'
import { readWithin } from './deadline.ts'
import type { Paging, RequestFilters } from './filters.ts'
import {
  afterCursor,
  equals,
  iso,
  isoAlways,
  limitOf,
  maxPageBytes,
  maxUrlLength,
  microsOf,
  newestFirst,
  toPage,
  within,
  type Order,
  type Page,
} from './page.ts'
import { uuidRange } from './search.ts'

const d = columnsOf(deliveries, 'd')
const m = columnsOf(media, 'm')
const p = columnsOf(onCall.polls, 'p')
/** Whatever the statement takes them from, it calls the requests so. */
const r = columnsOf(requests, 'r')
const listed = alias(requests, 'r')

export const mediaKindSchema = z.enum(['image', 'video', 'audio'])

export const requestSchema = z
  .object({
    id: z.guid(),
    request_id: z.guid(),
    status: requestStatusSchema,
    overdue: z.boolean().meta({ description: 'Without a terminal state for longer than STUCK_AFTER_SECONDS.' }),
    model: z.string().nullable(),
    key_name: z.string().nullable(),
    sandbox: z.boolean().nullable(),
    metadata: z.unknown().meta({ description: "The submitter's own." }),
    media_items: z.int(),
    media_complete: z.boolean().meta({ description: 'False while only what the webhook carried is known.' }),
    first_media: z.object({ kind: mediaKindSchema, url: z.string(), sha256: z.string().nullable() }).nullable(),
    cost: z.number().nullable(),
    error_code: z.string().nullable(),
    error_message: z.string().nullable(),
    source: z.enum(['webhook', 'reconciler']).nullable(),
    tracked_at: z.iso.datetime(),
    created_at: z.iso.datetime().nullable().meta({ description: "The provider's." }),
    completed_at: z.iso.datetime().nullable().meta({ description: "The provider's." }),
    landed_at: z.iso.datetime().nullable(),
    webhook_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'When the first of its deliveries came; null too once they are pruned.' }),
    contradiction: z.boolean().meta({ description: 'One of its deliveries contradicts the stored result.' }),
    confirmed_at: z.iso.datetime().nullable().meta({ description: "When the provider's own result was taken over." }),
    polls: z.int(),
    polled_at: z.iso.datetime().nullable().meta({ description: 'When it was polled last.' }),
    poll_outcome: z.enum(pollOutcomes).nullable().meta({ description: 'What came of that.' }),
    poll_detail: z.string().nullable().meta({ description: 'What more there is to say of that.' }),
    next_poll_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'Request' })
export type Request = z.infer<typeof requestSchema>

type RequestRow = RowOf<typeof requests, Exclude<keyof Request, Computed>> &
  Pick<Request, Computed> & { micros: string; cut: boolean }

/** What no column of the request says. */
type Computed = 'id' | 'overdue' | 'media_items' | 'first_media' | 'webhook_at' | 'contradiction'

const order: Order = { at: listed.tracked_at, id: listed.request_id }

/** Newest first, by when they were tracked. */
export async function listRequests(
  db: Database,
  { limit, cursor, ...filters }: RequestFilters & Paging,
  overdue: StuckAfter,
): Promise<Page<Request>> {
  const chosen = and(...matching(filters, overdue), afterCursor(cursor, order)) ?? sql`true`
  const which = sql`where ${chosen} order by ${newestFirst(order)} limit ${limitOf({ limit })}`
  const rows = await readWithin(db, (tx) => tx.execute<RequestRow>(selectRequests(which, overdue)))
  return toPage(rows, { limit }, toRequest)
}

/** One request; undefined when nobody tracks it. */
export async function findRequest(tx: Executor, requestId: string, overdue: StuckAfter): Promise<Request | undefined> {
  const [row] = await tx.execute<RequestRow>(selectRequests(sql`where ${r.request_id} = ${requestId}::uuid`, overdue))
  return row && toRequest(row)
}

/** What others put into a row. As text: on disk it is compressed. */
const bytes = sql`(coalesce(octet_length(r.readable::text), 0) + coalesce(octet_length(${r.error_message}), 0)
  + coalesce(octet_length(${r.model}), 0))`

/** Whether the last poll of landing came after that of the reconciler. */
const isLater = sql`polled.polled_at > coalesce(${r.polled_at}, '-infinity')`

/** What stands beside a request is only looked up for the rows that are shown. */
function selectRequests(which: SQL, overdue: StuckAfter): SQL {
  return sql`
    with wanted as (
      select r.*, mediadock.readable_metadata(${r.metadata}) as readable from mediadock.requests r ${which}
    ),
    weighed as (
      select r.*, sum(${bytes}) over (order by ${newestFirst(order)}) - ${bytes} as bytes_before,
        count(*) over () as rows_wanted
      from wanted r
    ),
    chosen as (
      select r.*, r.rows_wanted > count(*) over () as cut from weighed r where r.bytes_before < ${maxPageBytes}::int
    )
    select ${r.request_id} as id, ${r.request_id}, ${microsOf(order.at)} as micros, ${r.status},
      ${isOverdue(overdue)} as overdue,
      ${list(r, 'model', 'key_name', 'sandbox')}, r.readable as metadata,
      (select count(*)::int from mediadock.media m where ${m.request_id} = ${r.request_id}) as media_items,
      ${list(r, 'media_complete', 'cost', 'error_code', 'error_message', 'source')}, first.media as first_media,
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
      select jsonb_build_object('kind', ${m.kind}, 'url', left(${m.url}, ${maxUrlLength}::int),
        'sha256', ${m.sha256}) as media
      from mediadock.media m where ${m.request_id} = ${r.request_id} order by ${m.kind}, ${m.position} limit 1
    ) first on true
    left join lateral (
      -- The polls of landing, besides those of the reconciler.
      select ${p.polled_at}, ${p.outcome},
        case when ${p.outcome} in ('unreachable', 'invalid') then ${p.detail} end as detail
      from mediadock.polls p where ${p.request_id} = ${r.request_id} order by ${p.polled_at} desc limit 1
    ) polled on true
    order by ${newestFirst(order)}`
}

function matching(
  { status, model, key_name, overdue, contradiction, q, since, until }: RequestFilters,
  when: StuckAfter,
): (SQL | undefined)[] {
  return [
    status && statusIs(status),
    equals(listed.model, model),
    equals(listed.key_name, key_name),
    overdue === undefined ? undefined : overdue === 'true' ? isOverdue(when) : not(isOverdue(when)),
    contradiction === undefined ? undefined : contradiction === 'true' ? isContradicted : not(isContradicted),
    q === undefined ? undefined : idBegins(q),
    within(order.at, { since, until }),
  ]
}

/** Flagged deliveries that a filter looks through, the newest first. */
const maxFlagged = 20_000

/** A delivery of the request contradicts the stored result. Read by the index of flagged deliveries: they are few. */
const isContradicted = sql`${r.request_id} = any(array(
  select request_id from (
    select ${d.request_id}, ${d.flags} from mediadock.deliveries d where ${d.flags} <> '{}'
    order by ${d.received_at} desc, ${d.id} desc limit ${maxFlagged}
  ) flagged where 'contradiction' = any(flags) and request_id is not null))`

/** More than these are no answer to a search. */
const maxFound = 1000

/** Looked up first: the planner cannot tell how few ids a range of uuids has, and would walk all requests by time. */
function idBegins(q: string): SQL {
  const ranges = uuidRange(q).map(
    (range) =>
      sql`(select ${requests.request_id} from ${requests} where ${requests.request_id} ${range} limit ${maxFound})`,
  )
  return sql`${r.request_id} = any(array(${sql.join(ranges, sql` union all `)}))`
}

/** What is not terminal is found through the index of what is open. */
function statusIs(status: Request['status']): SQL | undefined {
  const open = status === 'IN_QUEUE' || status === 'IN_PROGRESS'
  return and(eq(listed.status, status), open ? isNull(listed.landed_at) : undefined)
}

function toRequest({ micros: _micros, cut: _cut, ...row }: RequestRow): Request {
  return {
    ...row,
    cost: row.cost === null ? null : Number(row.cost),
    tracked_at: isoAlways(row.tracked_at),
    created_at: iso(row.created_at),
    completed_at: iso(row.completed_at),
    landed_at: iso(row.landed_at),
    webhook_at: iso(row.webhook_at),
    confirmed_at: iso(row.confirmed_at),
    polled_at: iso(row.polled_at),
    next_poll_at: iso(row.next_poll_at),
  }
}
