ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "submit_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "missed_submit_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD COLUMN "promised" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "idempotency_key" uuid;--> statement-breakpoint
CREATE INDEX "requests_idempotency_key" ON "mediadock"."requests" USING btree ("idempotency_key") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."feed" AS (
  select position, case when status <> 4 then request_id end as request_id,
    case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' when 4 then 'REFUSED' end as status, media_complete, changed_at,
    case when status = 4 then request_id end as idempotency_key,
    case when status = 4 then (select g.answer -> 'error' ->> 'code' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_code,
    case when status = 4 then (select g.answer -> 'error' ->> 'message' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_message,
    case when status = 4 then (select g.metadata from mediadock.generations g where g.idempotency_key = e.request_id) end as metadata
  from mediadock.feed_entries e);--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."results" AS (
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key
  from mediadock.requests);--> statement-breakpoint
-- A result that a submit's answer joins after it landed is another to readers that look for its Idempotency-Key.
CREATE OR REPLACE TRIGGER "requests_note_joined" AFTER UPDATE OF metadata ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NOT NULL AND (NEW.metadata, NEW.model, NEW.key_name, NEW.sandbox, NEW.idempotency_key) IS DISTINCT FROM (OLD.metadata, OLD.model, OLD.key_name, OLD.sandbox, OLD.idempotency_key))
EXECUTE FUNCTION "mediadock"."note_joined"();
