ALTER TABLE "mediadock"."generations" ADD COLUMN "sandbox" boolean;--> statement-breakpoint
ALTER TABLE "mediadock"."subscriptions" ADD COLUMN "filter" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
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
      select g.sandbox from mediadock.generations g where g.idempotency_key = e.request_id) end as sandbox
  from mediadock.feed_entries e);