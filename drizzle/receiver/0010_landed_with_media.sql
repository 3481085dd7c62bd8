-- What says COMPLETED and has no media was written by others, and so was what is terminal without having landed
-- (or the other way round): it is open again, and the provider is asked.
UPDATE "mediadock"."requests" r SET status = 'IN_QUEUE', output = NULL, media_complete = false, source = NULL, landed_at = NULL,
  confirmed_at = NULL, next_poll_at = now()
WHERE (landed_at IS NOT NULL) <> (status IN ('COMPLETED', 'FAILED', 'CANCELED'))
  OR (landed_at IS NULL AND (source IS NOT NULL OR confirmed_at IS NOT NULL))
  OR (status = 'COMPLETED' AND NOT EXISTS (SELECT FROM "mediadock"."media" m WHERE m.request_id = r.request_id));
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_landed" CHECK ((landed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELED')) and (landed_at is not null or (source is null and confirmed_at is null)));
--> statement-breakpoint
-- Fires when the whole statement has been done, so it sees the media that landing writes beside the row.
CREATE FUNCTION "mediadock"."require_media"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM mediadock.media WHERE request_id = NEW.request_id LIMIT 1;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = 'mediadock', TABLE = 'requests', CONSTRAINT = 'requests_media',
      MESSAGE = format('request %s cannot be COMPLETED without a row of mediadock.media', NEW.request_id);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "requests_media_inserted" AFTER INSERT ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.status = 'COMPLETED') EXECUTE FUNCTION "mediadock"."require_media"();
--> statement-breakpoint
CREATE TRIGGER "requests_media_updated" AFTER UPDATE OF status ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.status = 'COMPLETED' AND OLD.status <> 'COMPLETED') EXECUTE FUNCTION "mediadock"."require_media"();
