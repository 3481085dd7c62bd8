-- Null in each column of a source means the first source, so no row is rewritten.
ALTER TABLE "mediadock"."arrivals" ADD COLUMN "source_name" text;--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD COLUMN "source_name" text;--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" ADD COLUMN "source_name" text;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "source_name" text;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "external_id" text;--> statement-breakpoint
CREATE INDEX "requests_external_id" ON "mediadock"."requests" USING btree ("external_id") WHERE external_id is not null;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_source" CHECK (source_name <> 'generation-queue' and char_length(source_name) <= 63 and char_length(external_id) <= 255) NOT VALID;--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."feed" AS (
  select position, case when status <> 4 then request_id end as request_id,
    case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' when 4 then 'REFUSED' end as status, media_complete, changed_at,
    case when status = 4 then request_id end as idempotency_key,
    case when status = 4 then (select g.answer -> 'error' ->> 'code' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_code,
    case when status = 4 then (select g.answer -> 'error' ->> 'message' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_message,
    case when status = 4 then (
      select g.metadata from mediadock.generations g where g.idempotency_key = e.request_id) end as metadata,
    case when status = 4 then (
      select g.model from mediadock.generations g where g.idempotency_key = e.request_id) end as model,
    case when status = 4 then (
      select g.key_name from mediadock.generations g where g.idempotency_key = e.request_id) end as key_name,
    case when status = 4 then (
      select g.sandbox from mediadock.generations g where g.idempotency_key = e.request_id) end as sandbox,
    case when status = 4 then (
      select coalesce(g.source_name, 'generation-queue') from mediadock.generations g
      where g.idempotency_key = e.request_id) end as source_name
  from mediadock.feed_entries e);--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."results" AS (
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position,
         coalesce(source_name, 'generation-queue') as source_name,
         coalesce(external_id, request_id::text) as external_id
  from mediadock.requests);--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."request_id" IS
  'The provider''s id of the request. Of a source whose ids are no uuids: a uuid made of the source and its id.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."source_name" IS
  'The source that the request belongs to: a name in SOURCES_FILE, or generation-queue.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."external_id" IS 'The source''s own id of the request.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."source_name" IS 'Of a REFUSED submit: the source of its key. Null otherwise.';
