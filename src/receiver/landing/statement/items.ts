import { atMost } from '../../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import type { Landing } from '../landing.ts'

/** Long against any landing of ours, short for those who land by the same statement. */
export const lockWaitMs = 500

/** `item`: the landings as rows, one for each. */
export function items(landings: readonly Landing[], waitMs: number): SQL {
  return sql`
    -- Somebody's open transaction may hold a row of one request: it is waited for shortly, since all others wait with it.
    patience as materialized (select set_config('lock_timeout', ${`${waitMs}ms`}, true)),
    item as (
      select i.* from patience, jsonb_to_recordset(${JSON.stringify(landings.map(toItem))}::jsonb) as i (
        request_id uuid, status text, model text, output jsonb, media jsonb, media_complete boolean, cost numeric,
        error_code text, error_message text, created_at timestamptz, completed_at timestamptz, source text,
        confirmed boolean, key_name text, sandbox boolean, next_poll_at timestamptz, flags jsonb,
        delivery_id uuid, claims integer, first_id uuid, last_id uuid)
      limit ${atMost(landings.length)}
    )`
}

/** The names of the columns, and nothing nested but JSON. */
function toItem({ delivery, error, environment, ...landing }: Landing) {
  return {
    request_id: landing.requestId,
    status: landing.status,
    model: landing.model,
    output: landing.output,
    media: landing.media,
    media_complete: landing.mediaComplete,
    cost: landing.cost,
    error_code: error?.code,
    error_message: error?.message,
    created_at: landing.createdAt,
    completed_at: landing.completedAt,
    source: landing.source,
    confirmed: landing.confirmed,
    key_name: landing.keyName,
    sandbox: environment === undefined ? undefined : environment === 'sandbox',
    next_poll_at: landing.nextPollAt?.toISOString(),
    flags: landing.flags,
    delivery_id: delivery?.id,
    claims: delivery?.claims,
    first_id: delivery?.first,
    last_id: delivery?.last,
  }
}
