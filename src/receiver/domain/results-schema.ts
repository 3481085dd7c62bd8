import {
  boolean,
  instant,
  integer,
  jsonb,
  numeric,
  sql,
  text,
  uuid,
  type SQL,
} from '../../platform/postgres/drizzle.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { mediadock } from './base-schema.ts'
import { sandboxOf } from './environment.ts'
import { defaultSourceName } from './source.ts'

/** SQL: the output that consists of one row of `media` alone, as outputOfItem() of report.ts makes it. */
export const outputOfRow = (media: SQL) => sql`(
           select jsonb_strip_nulls(case kind when 'image' then jsonb_build_object('images', jsonb_build_array(item))
             else jsonb_build_object(kind, item) end)
           from (select kind, jsonb_build_object('url', url, 'original_url', original_url, 'width', width,
               'height', height, 'duration', duration_seconds) as item from ${media} limit 1) as m)`

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
  select request_id, status, model,
         coalesce(output, case when status = 'COMPLETED' then ${outputOfRow(
           sql`mediadock.media where media.request_id = r.request_id`,
         )} end) as output,
         media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, ${sandboxOf('r')} as sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position,
         coalesce(source_name, '${sql.raw(defaultSourceName)}') as source_name,
         coalesce(external_id, request_id::text) as external_id
  from mediadock.requests r`)
