ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "trial_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "key_source" text;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "signed_sandbox" boolean;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_key_source" CHECK (key_source in ('tracked', 'landed'));--> statement-breakpoint
-- A service's own INSERT may come after the webhook that made the row: ON CONFLICT DO NOTHING would then
-- forget what it says. What is missing is filled in, and its key takes the place of one that only a webhook
-- named; the provider is then asked at once. Rows that we write ourselves do that by their own statement.
CREATE FUNCTION "mediadock"."join_tracked"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
    next_poll_at = CASE WHEN rekeyed AND known.landed_at IS NOT NULL AND known.key_name IS DISTINCT FROM NEW.key_name THEN now() ELSE known.next_poll_at END
  WHERE request_id = NEW.request_id;
  RETURN NEW;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."join_tracked"() FROM PUBLIC;
--> statement-breakpoint
CREATE TRIGGER "requests_join_tracked" BEFORE INSERT ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NULL AND NEW.key_source IS NULL) EXECUTE FUNCTION "mediadock"."join_tracked"();
