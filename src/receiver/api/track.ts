import { sql } from 'drizzle-orm'
import { z } from 'zod'
import type { Database } from '../../runtime/postgres.ts'
import { one } from '../../runtime/postgres-errors.ts'
import type { Environment } from '../keys.ts'

const text = z.string().min(1).max(255)

export const trackBodySchema = z.strictObject({
  request_id: z.guid(),
  model: text.optional(),
  key_name: text.optional().meta({ description: 'The key that it was submitted with: it is asked for with this one first.' }),
  metadata: z.record(z.string(), z.unknown()).optional(),
})
export type TrackBody = z.infer<typeof trackBodySchema>

/**
 * Tracks a request that was submitted elsewhere; answers whether it is new here.
 * A webhook may have been faster: what is missing in its row is then filled in,
 * and nothing that is known is changed.
 */
export async function trackRequest(db: Database, body: TrackBody, { environment, now }: { environment: Environment | undefined; now: Date }): Promise<boolean> {
  const { request_id, model = null, key_name = null, metadata } = body
  const sandbox = environment === undefined ? null : environment === 'sandbox'
  const rows = await db.execute<{ created: boolean }>(sql`
    insert into mediadock.requests as r (request_id, model, key_name, sandbox, metadata, tracked_at)
    values (${request_id}::uuid, ${model}, ${key_name}, ${sandbox}::boolean,
      ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb, ${now.toISOString()}::timestamptz)
    on conflict (request_id) do update set
      model = coalesce(r.model, excluded.model), metadata = coalesce(r.metadata, excluded.metadata),
      key_name = coalesce(r.key_name, excluded.key_name),
      sandbox = case when r.key_name is null then coalesce(r.sandbox, excluded.sandbox) else r.sandbox end
    -- A row that this statement made has never been locked or updated.
    returning xmax = 0 as created`)
  return one(rows, `tracking the request ${request_id}`).created
}
