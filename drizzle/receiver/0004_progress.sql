ALTER TABLE "mediadock"."requests" ADD COLUMN "progress" integer;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "queue_position" integer;--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."results" AS (
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position
  from mediadock.requests);