import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { invalidBody } from '../../platform/http/json-body.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { metALock, one } from '../../platform/postgres/errors.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { toSandbox } from '../domain/environment.ts'
import type { Keys } from '../domain/keys.ts'
import { jobIdPattern, requestIdOf } from '../domain/request-id.ts'
import * as schema from '../domain/schema.ts'
import { storedName } from '../domain/source.ts'
import { joinTracked, requeueParked, requeueParkedOf, type TrackedBy } from '../submitting/tracking.ts'
import { locked } from './operation.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

const text = z.string().min(1).max(255)

export const trackBodySchema = z.strictObject({
  request_id: z.guid().optional().describe('The id of the request. May be left out where external_id is given.'),
  external_id: z
    .string()
    .regex(jobIdPattern, 'must have 1 to 255 visible ASCII characters, and not begin with a dot')
    .optional()
    .describe('The id that the source gave the job. Only with a key of a source other than the default.'),
  model: text.optional(),
  key_name: text.optional().describe('The key of the submit. Polls use this key first.'),
  metadata: z.record(z.string(), z.unknown()).optional(),
})
export type TrackBody = z.infer<typeof trackBodySchema>

export type Tracked = Pick<TrackBody, 'model' | 'key_name' | 'metadata'> & {
  request_id: string
  external_id?: string | null
  source_name?: string | null
}

/** Completes a request to track with its ids and the source of its key. Throws HttpError 400 invalid_body. */
export function tracked(body: TrackBody, keys: Keys): Tracked {
  const { request_id, external_id } = body
  const key = keys.byName.get(body.key_name ?? '')
  const sourceName = key === undefined ? null : storedName(key.source)
  if (external_id !== undefined && sourceName === null)
    throw invalidBody('external_id: is only for requests with a key_name of a source in SOURCES_FILE')
  const jobId = external_id ?? request_id?.toLowerCase()
  if (jobId === undefined) throw invalidBody('request_id: is missing')
  const ids = requestIdOf(sourceName, jobId)
  if (request_id !== undefined && request_id.toLowerCase() !== ids.requestId)
    throw invalidBody(`request_id: must be ${ids.requestId} for this external_id, or left out`)
  return { ...body, request_id: ids.requestId, external_id: ids.externalId, source_name: sourceName }
}

/** Less than the 5 s after which the caller is answered, since the write would otherwise follow the answer. */
const lockWaitMs = 2000

/**
 * Tracks a request that was submitted elsewhere. Returns true if the request is new here. Throws HttpError 409
 * source_mismatch if it belongs to another source, and 503 request_locked if another transaction holds it.
 */
export async function trackRequest(db: Database, body: Tracked, { environment, now }: TrackedBy): Promise<boolean> {
  const { request_id, external_id = null, source_name = null, model = null, key_name = null, metadata } = body
  const tracking = db.execute<{ created: boolean | null }>(sql`
    with lock_wait as materialized (${lockWait(lockWaitMs)}),
    tracked as (
      insert into mediadock.requests as r
        (${list(requests, 'request_id', 'source_name', 'external_id')},
        ${list(requests, 'model', 'key_name', 'key_source', 'sandbox', 'metadata', 'tracked_at')})
      select ${request_id}::uuid, ${source_name}, ${external_id}, ${model}, ${key_name}, 'tracked',
        ${toSandbox(environment)}::boolean,
        ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb, ${now}
      from lock_wait
      on conflict (request_id) ${joinTracked(now)}
      -- xmax is 0 for an inserted row, since it has never been locked or updated.
      returning ${r.request_id}, ${r.confirmed_at} is null as open, xmax = 0 as created
    ),
    ${requeueParked({ environment, now })}
    select (select created from tracked) as created`)
  const rows = await tracking.catch((error: unknown) => {
    throw metALock(error) ? locked() : error
  })
  const { created } = one(rows, `tracking the request ${request_id}`)
  if (created === false) await requeueParkedOf(db, request_id, { environment, now })
  if (created !== null) return created
  throw new HttpError(409, 'source_mismatch', 'this request belongs to another source, and never changes it')
}
