import { sql, type SQL } from 'drizzle-orm'
import { z } from 'zod'
import type { Database } from '../../runtime/postgres.ts'
import { requestStatusSchema } from '../../wire/schemas.ts'
import { readWithin } from './deadline.ts'
import type { Paging, RequestFilters } from './filters.ts'
import { afterCursor, allOf, iso, isoAlways, limitOf, microsOf, toPage, within, type Order, type Page } from './page.ts'

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
    media_complete: z.boolean(),
    cost: z.number().nullable(),
    error_code: z.string().nullable(),
    error_message: z.string().nullable(),
    source: z.enum(['webhook', 'reconciler']).nullable(),
    tracked_at: z.iso.datetime(),
    created_at: z.iso.datetime().nullable().meta({ description: "The provider's." }),
    completed_at: z.iso.datetime().nullable().meta({ description: "The provider's." }),
    landed_at: z.iso.datetime().nullable(),
    confirmed_at: z.iso.datetime().nullable().meta({ description: "When the provider's own result was taken over." }),
    polls: z.int(),
    polled_at: z.iso.datetime().nullable(),
    poll_outcome: z.string().nullable(),
    next_poll_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'Request' })
export type Request = z.infer<typeof requestSchema>

type RequestRow = Omit<Request, 'id' | 'cost'> & { id: string; micros: string; cost: string | null }

/** What decides whether a request is overdue: the clock's time and STUCK_AFTER_SECONDS. */
export type Overdue = { now: Date; stuckAfterSeconds: number }

const order: Order = { at: sql`r.tracked_at`, id: sql`r.request_id`, idType: 'uuid' }

/** Newest first, by when they were tracked. */
export async function listRequests(db: Database, { limit, cursor, ...filters }: RequestFilters & Paging, overdue: Overdue): Promise<Page<Request>> {
  const chosen = allOf([...matching(filters, overdue), afterCursor(cursor, order)])
  const rows = await readWithin(db, (tx) =>
    tx.execute<RequestRow>(sql`
      ${selectRequests(overdue)} where ${chosen}
      order by r.tracked_at desc nulls last, r.request_id desc nulls last limit ${limitOf({ limit })}`),
  )
  return toPage(rows, { limit }, toRequest)
}

/** One request; undefined when nobody tracks it. */
export async function findRequest(tx: Database, requestId: string, overdue: Overdue): Promise<Request | undefined> {
  const [row] = await tx.execute<RequestRow>(sql`${selectRequests(overdue)} where r.request_id = ${requestId}::uuid`)
  return row && toRequest(row)
}

function selectRequests(overdue: Overdue): SQL {
  return sql`
    select r.request_id as id, r.request_id, ${microsOf(order.at)} as micros, r.status, ${isOverdue(overdue)} as overdue, r.model, r.key_name,
      r.sandbox, r.metadata, (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media_items,
      r.media_complete, r.cost, r.error_code, r.error_message, r.source, r.tracked_at, r.created_at, r.completed_at, r.landed_at,
      r.confirmed_at, r.polls, r.polled_at, r.poll_outcome, r.next_poll_at
    from mediadock.requests r`
}

/** As reconciler.ts counts them. */
function isOverdue({ now, stuckAfterSeconds }: Overdue): SQL {
  return sql`(r.landed_at is null and r.tracked_at <= ${now.toISOString()}::timestamptz - make_interval(secs => ${stuckAfterSeconds}))`
}

function matching({ status, model, key_name, overdue, since, until }: RequestFilters, when: Overdue): (SQL | undefined)[] {
  return [
    status && statusIs(status),
    model === undefined ? undefined : sql`r.model = ${model}`,
    key_name === undefined ? undefined : sql`r.key_name = ${key_name}`,
    overdue === undefined ? undefined : overdue === 'true' ? isOverdue(when) : sql`not ${isOverdue(when)}`,
    within(order.at, { since, until }),
  ]
}

/** What is not terminal is found through the index of what is open. */
function statusIs(status: Request['status']): SQL {
  const open = status === 'IN_QUEUE' || status === 'IN_PROGRESS'
  return open ? sql`r.status = ${status} and r.landed_at is null` : sql`r.status = ${status}`
}

function toRequest({ micros: _micros, ...row }: RequestRow): Request {
  return {
    ...row,
    cost: row.cost === null ? null : Number(row.cost),
    tracked_at: isoAlways(row.tracked_at),
    created_at: iso(row.created_at),
    completed_at: iso(row.completed_at),
    landed_at: iso(row.landed_at),
    confirmed_at: iso(row.confirmed_at),
    polled_at: iso(row.polled_at),
    next_poll_at: iso(row.next_poll_at),
  }
}
