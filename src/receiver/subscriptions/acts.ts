import { randomBytes, randomUUID } from 'node:crypto'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { invalidBody } from '../../platform/http/json-body.ts'
import { parseGivenUrl } from '../../platform/outward/public-url.ts'
import { and, eq, type PgUpdateSetSource, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { FeedItem } from '../queries/feed.ts'
import { feedFilterSchema } from '../queries/filters.ts'
import type { ReceiverSettings } from '../settings.ts'
import { createSubscriptionPoster } from './role.ts'
import { subscriptions } from './subscriptions-schema.ts'
import { judgeSubscriptionUrl, postChange } from './turn.ts'

/** Bounded, since each round of a replica looks at each subscription. */
const maxSubscriptions = 50
/** A month, as long as the feed is kept by default. After that, the next change may be deleted. */
const maxRetryHours = 24 * 30

export const subscriptionNameSchema = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z, 0-9, dot, dash and underscore, and begin and end with a letter or a digit',
  )
export const placeSchema = z
  .union([z.enum(['oldest', 'newest']), z.int().min(1)], 'must be oldest, newest or a position of the feed')
  .describe('Where to start: at the oldest change that is kept, with changes from now on, or after a position.')
export type FeedPlace = z.infer<typeof placeSchema>

export const newSubscriptionSchema = z.strictObject({
  name: subscriptionNameSchema,
  url: z.string(),
  retry_hours: z.int().min(1).max(maxRetryHours, `must be at most ${maxRetryHours}`).optional(),
  from: placeSchema.optional(),
  filter: feedFilterSchema.optional(),
})

/** SQL: the first position of a subscription; null if it is no longer kept or was never assigned. */
function startAt(from: FeedPlace): SQL {
  const kept = sql`greatest((select pruned_to from mediadock.feed_bounds), 1)`
  const head = sql`greatest((select max(e.position) from mediadock.feed_entries e), ${kept})`
  if (from === 'oldest') return kept
  if (from === 'newest') return head
  return sql`(select p from (values (${from}::bigint)) as given (p) where p between ${kept} and ${head})`
}

export type NewSubscription = z.infer<typeof newSubscriptionSchema>

/** Adds a subscription. The answer contains its secret, which is not shown again. */
export async function addSubscription(
  db: Database,
  { name, url: given, retry_hours: retryHours = 24, from = 'newest', filter = {} }: NewSubscription,
  settings: Pick<ReceiverSettings, 'production'>,
): Promise<{ name: string; url: string; position: number; secret: string }> {
  const url = parseGivenUrl(given)
  if (typeof url === 'string') throw invalidBody(`url: ${url}`)
  const dialling = judgeSubscriptionUrl(url, settings)
  if (dialling.kind === 'refused') throw invalidBody(`url: ${dialling.why}`)
  const secret = newSecret()
  const rows = await db.execute<{ place: string | null; others: number; position: string | null }>(sql`
    with place as materialized (
      select ${startAt(from)} as position, (select count(*)::int from mediadock.subscriptions) as others
    ),
    added as (
      insert into mediadock.subscriptions (name, url, secret, retry_hours, filter, only_complete, position)
      select ${name}, ${url.href}, ${secret}, ${retryHours}::int, ${JSON.stringify(filter)}::jsonb,
        ${filter.complete === true}, position
      from place where position is not null and others < ${maxSubscriptions}
      on conflict do nothing returning position
    )
    select place.position::text as place, place.others, (select position::text from added) as position from place`)
  const { place, others, position } = one(rows, 'adding a subscription')
  if (place === null) throw notKept()
  if (others >= maxSubscriptions)
    throw new HttpError(
      409,
      'too_many_subscriptions',
      `there are ${others} subscriptions, which is the limit: remove one first`,
    )
  if (position === null) throw new HttpError(409, 'name_taken', `a subscription ${name} exists: choose another name`)
  return { name, url: url.href, position: Number(position), secret }
}

/** The values that clear all failures of a subscription. */
const resumed = {
  state: 'active',
  paused_by: null,
  paused_at: null,
  stopped_at: null,
  stop_reason: null,
  failures: 0,
  failing_since: null,
  last_error: null,
} as const

type Acting = { db: Database; settings: Pick<ReceiverSettings, 'production'> }
/** `from`: where `resume` continues, instead of at its position. */
type ActOptions = { actor: string; from?: FeedPlace | undefined; now: Date; signal: AbortSignal }

/** The acts on a subscription of this name. Each returns undefined for an unknown name. */
export const subscriptionActs = {
  /** Posts under way finish. */
  pause: async ({ db }: Acting, name: string, { actor: paused_by }: ActOptions) =>
    change(db, name, { state: 'paused', paused_by, paused_at: sql`now()`, stopped_at: null, stop_reason: null }),
  /** With `from`, changes in between are skipped or repeated. */
  resume: async ({ db }: Acting, name: string, { from }: ActOptions) => {
    const going = { ...resumed, next_attempt_at: sql`now()` }
    if (from === undefined) return change(db, name, going)
    const place = startAt(from)
    // Counting up the claims fences a replica that works on it, which would overwrite the position.
    const claims = sql`${subscriptions.claims} + 1`
    const moved = await change(db, name, { ...going, position: place, ahead: [], claims }, sql`${place} is not null`)
    if (moved === undefined && (await change(db, name, { name }))) throw notKept()
    return moved
  },
  test: testSubscription,
  /** Replaces the secret. Posts under way still use the old one. Posts that the service refuses are repeated. */
  roll: async ({ db }: Acting, name: string) => {
    const secret = newSecret()
    return (await change(db, name, { secret })) && { secret }
  },
  remove: async ({ db }: Acting, name: string) => {
    const { position } = subscriptions
    const [removed] = await db.delete(subscriptions).where(eq(subscriptions.name, name)).returning({ position })
    return removed
  },
}

export type ActName = keyof typeof subscriptionActs

export function isAct(word: unknown): word is ActName {
  return typeof word === 'string' && Object.hasOwn(subscriptionActs, word)
}

async function change(
  db: Database,
  name: string,
  values: PgUpdateSetSource<typeof subscriptions>,
  only?: SQL,
): Promise<{ position: number } | undefined> {
  const { position } = subscriptions
  const [changed] = await db
    .update(subscriptions)
    .set(values)
    .where(and(eq(subscriptions.name, name), only))
    .returning({ position })
  return changed
}

export type SubscriptionTest = { ok: boolean; trouble: string | null; webhook_id: string }

/** Posts a sample that is not a change: its position is 0, and its webhook id begins with `test-`. */
async function testSubscription(
  { db, settings }: Acting,
  name: string,
  { now, signal }: ActOptions,
): Promise<SubscriptionTest | undefined> {
  const { url, secret } = subscriptions
  const [row] = await db.select({ url, secret }).from(subscriptions).where(eq(subscriptions.name, name))
  if (!row) return undefined
  const item: FeedItem = {
    position: 0,
    request_id: '00000000-0000-0000-0000-000000000000',
    idempotency_key: null,
    status: 'COMPLETED',
    media_complete: true,
    changed_at: now.toISOString(),
    result: null,
    media: [],
  }
  const webhookId = `test-${randomUUID()}`
  const poster = createSubscriptionPoster(settings)
  try {
    const end = await postChange({ poster, clock: () => now }, row, { webhookId, item }, signal)
    const trouble = end.outcome === 'cut' ? 'the test was aborted' : 'trouble' in end ? end.trouble : null
    return { ok: end.outcome === 'accepted', trouble, webhook_id: webhookId }
  } finally {
    await poster.close()
  }
}

function newSecret(): string {
  return `whsec_${randomBytes(32).toString('base64url')}`
}

function notKept(): HttpError {
  return new HttpError(
    410,
    'position_expired',
    'from: the changes after this position are not kept, or it was never assigned: start with oldest or newest',
  )
}
