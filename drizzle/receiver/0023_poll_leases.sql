ALTER TABLE "mediadock"."requests" ADD COLUMN "poll_leased_until" timestamp with time zone DEFAULT '-infinity' NOT NULL;
--> statement-breakpoint
-- The same function as before, but that another key also ends the claim of a poll that is under way.
CREATE OR REPLACE FUNCTION "mediadock"."join_tracked"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  known mediadock.requests;
  rekeyed boolean;
BEGIN
  SELECT * INTO known FROM mediadock.requests WHERE request_id = NEW.request_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NEW;
  END IF;
  rekeyed := NEW.key_name IS NOT NULL AND known.confirmed_at IS NULL AND (known.key_name IS NULL OR known.key_source = 'landed');
  UPDATE mediadock.requests SET
    model = coalesce(known.model, NEW.model),
    metadata = coalesce(known.metadata, NEW.metadata),
    key_name = CASE WHEN rekeyed THEN NEW.key_name ELSE known.key_name END,
    key_source = CASE WHEN rekeyed THEN NULL ELSE known.key_source END,
    next_poll_at = CASE WHEN rekeyed AND known.landed_at IS NOT NULL AND known.key_name IS DISTINCT FROM NEW.key_name THEN now() ELSE known.next_poll_at END,
    poll_leased_until = CASE WHEN rekeyed THEN '-infinity' ELSE known.poll_leased_until END,
    poll_claims = CASE WHEN rekeyed THEN known.poll_claims + 1 ELSE known.poll_claims END
  WHERE request_id = NEW.request_id;
  RETURN NEW;
END $$;
