-- `sandbox` is the environment of the request, and `signed_sandbox` that of its result. Readers get one value.
CREATE OR REPLACE TRIGGER "requests_note_joined" AFTER UPDATE OF metadata ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NOT NULL AND (NEW.metadata, NEW.model, NEW.key_name, coalesce(NEW.sandbox, NEW.signed_sandbox), NEW.idempotency_key) IS DISTINCT FROM (OLD.metadata, OLD.model, OLD.key_name, coalesce(OLD.sandbox, OLD.signed_sandbox), OLD.idempotency_key))
EXECUTE FUNCTION "mediadock"."note_joined"();--> statement-breakpoint
CREATE OR REPLACE VIEW "mediadock"."results" AS (
  select request_id, status, model,
         coalesce(output, case when status = 'COMPLETED' then (
           select jsonb_strip_nulls(case kind when 'image' then jsonb_build_object('images', jsonb_build_array(item))
             else jsonb_build_object(kind, item) end)
           from (select kind, jsonb_build_object('url', url, 'original_url', original_url, 'width', width,
               'height', height, 'duration', duration_seconds) as item from mediadock.media where media.request_id = r.request_id limit 1) as m) end) as output,
         media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, coalesce(r.sandbox, r.signed_sandbox) as sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position,
         coalesce(source_name, 'generation-queue') as source_name,
         coalesce(external_id, request_id::text) as external_id
  from mediadock.requests r);
