-- The limits of metadata, checked where it is written. A CHECK constraint is evaluated at every update of the row, which
-- takes 30 ms for 1 MiB: 150 such rows kept the deliveries behind them waiting for seconds.
CREATE FUNCTION "mediadock"."check_metadata"() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Sizes come before texts: 1e100000 takes a few bytes here and 100,001 as text, and small numbers up to six times the
  -- size of their text. jsonpath stops at its level, so that is safe at any depth.
  IF pg_column_size(NEW.metadata) <= 8388608 AND NOT jsonb_path_exists(NEW.metadata, '$.**{200}')
    AND octet_length(NEW.metadata::text) <= 1048576 THEN RETURN NEW; END IF;
  RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
    COLUMN = 'metadata', CONSTRAINT = TG_NAME,
    MESSAGE = format('the metadata of a row of %I.%I is too large', TG_TABLE_SCHEMA, TG_TABLE_NAME),
    HINT = 'Metadata has at most 1048576 bytes as text, and is nested less than 201 levels deep.';
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."check_metadata"() FROM PUBLIC;
--> statement-breakpoint
CREATE TRIGGER "requests_metadata" BEFORE INSERT OR UPDATE OF metadata ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.metadata IS NOT NULL) EXECUTE FUNCTION "mediadock"."check_metadata"();
--> statement-breakpoint
CREATE TRIGGER "generations_metadata" BEFORE INSERT OR UPDATE OF metadata ON "mediadock"."generations"
FOR EACH ROW WHEN (NEW.metadata IS NOT NULL) EXECUTE FUNCTION "mediadock"."check_metadata"();
--> statement-breakpoint
ALTER TABLE "mediadock"."generations" DROP CONSTRAINT "generations_metadata_size";--> statement-breakpoint
ALTER TABLE "mediadock"."generations" DROP CONSTRAINT "generations_metadata_depth";--> statement-breakpoint
ALTER TABLE "mediadock"."requests" DROP CONSTRAINT "requests_metadata_size";--> statement-breakpoint
ALTER TABLE "mediadock"."requests" DROP CONSTRAINT "requests_metadata_depth";
