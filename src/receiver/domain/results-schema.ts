import { boolean, instant, integer, jsonb, numeric, sql, text, uuid } from '../../platform/postgres/drizzle.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { mediadock } from './base-schema.ts'
import { firstSourceName } from './source.ts'

/** The view that internal services read. Columns are only ever added. */
export const results = mediadock.view('results', {
  request_id: uuid().notNull(),
  status: text({ enum: requestStatuses }).notNull(),
  model: text(),
  output: jsonb(),
  media_complete: boolean().notNull(),
  cost: numeric(),
  error_code: text(),
  error_message: text(),
  created_at: instant().notNull(),
  completed_at: instant(),
  landed_at: instant(),
  source: text({ enum: ['webhook', 'reconciler'] }),
  key_name: text(),
  sandbox: boolean(),
  metadata: jsonb(),
  idempotency_key: uuid(),
  progress: integer(),
  queue_position: integer(),
  source_name: text().notNull(),
  external_id: text().notNull(),
}).as(sql`
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position,
         coalesce(source_name, '${sql.raw(firstSourceName)}') as source_name,
         coalesce(external_id, request_id::text) as external_id
  from mediadock.requests`)
