import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'
import { joinTracked, requeueParked, type TrackedBy } from '../submitting/tracking.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

const text = z.string().min(1).max(255)

export const trackBodySchema = z.strictObject({
  request_id: z.guid(),
  model: text.optional(),
  key_name: text.optional().meta({ description: 'The key of the submit. Polls use this key first.' }),
  metadata: z.record(z.string(), z.unknown()).optional(),
})
export type TrackBody = z.infer<typeof trackBodySchema>

/** Tracks a request that was submitted elsewhere. Returns true if the request is new here. */
export async function trackRequest(
  db: Database,
  body: TrackBody,
  { environment, keyNames, now }: TrackedBy,
): Promise<boolean> {
  const { request_id, model = null, key_name = null, metadata } = body
  const sandbox = environment === undefined ? null : environment === 'sandbox'
  const rows = await db.execute<{ created: boolean }>(sql`
    with tracked as (
      insert into mediadock.requests as r
        (${list(requests, 'request_id', 'model', 'key_name', 'key_source', 'sandbox', 'metadata', 'tracked_at')})
      values (${request_id}::uuid, ${model}, ${key_name}, 'tracked', ${sandbox}::boolean,
        ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb, ${now})
      on conflict (request_id) ${joinTracked(now)}
      -- xmax is 0 for an inserted row, since it has never been locked or updated.
      returning ${r.request_id}, ${r.confirmed_at} is null as open, xmax = 0 as created
    ),
    ${requeueParked({ environment, keyNames, now })}
    select created from tracked`)
  return one(rows, `tracking the request ${request_id}`).created
}
