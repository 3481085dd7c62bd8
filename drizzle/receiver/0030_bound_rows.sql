-- Rows of earlier versions would be refused each time they are written, and some would stop who reads them: a text that
-- is too long is cut, metadata that cannot be written out goes.
UPDATE "mediadock"."requests" SET model = left(model, 255), key_name = left(key_name, 255), error_code = left(error_code, 255), error_message = left(error_message, 4000)
WHERE char_length(model) > 255 OR char_length(key_name) > 255 OR char_length(error_code) > 255 OR char_length(error_message) > 4000;
--> statement-breakpoint
-- The metadata, or where it cannot be written out an object that says so. Numbers come first: one that no double
-- holds, like 1e100000, takes a few bytes here and 100,001 as text.
CREATE FUNCTION "mediadock"."readable_metadata"(metadata jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_column_size(metadata) <= 8388608 AND NOT jsonb_path_exists(metadata, '$.**{200}')
    AND NOT jsonb_path_exists(metadata, '$.**{0 to 200} ? (@.type() == "number" && (@ > 1e308 || @ < -1e308 || (@ > -1e-308 && @ < 1e-308 && @ != 0)))')
    AND octet_length(metadata::text) <= 1048576 THEN RETURN metadata; END IF;
  RETURN '{"error": {"code": "unreadable", "message": "this metadata was nested deeper than 200, longer than 1048576 bytes, or held a number that no double holds"}}';
END $$;
--> statement-breakpoint
UPDATE "mediadock"."requests" SET metadata = mediadock.readable_metadata(metadata)
WHERE pg_column_size(metadata) > 400 AND mediadock.readable_metadata(metadata) IS DISTINCT FROM metadata;
--> statement-breakpoint
UPDATE "mediadock"."generations" SET metadata = mediadock.readable_metadata(metadata)
WHERE pg_column_size(metadata) > 400 AND mediadock.readable_metadata(metadata) IS DISTINCT FROM metadata;
--> statement-breakpoint
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" DROP CONSTRAINT "requests_metadata_size";
--> statement-breakpoint
ALTER TABLE "mediadock"."changes" ADD CONSTRAINT "changes_aligned" CHECK (cardinality(request_ids) = cardinality(statuses) and cardinality(request_ids) = cardinality(media_complete)
        and array_position(request_ids, null) is null and array_position(statuses, null) is null and array_position(media_complete, null) is null) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD CONSTRAINT "generations_lengths" CHECK (char_length(model) <= 255 and char_length(key_name) <= 255) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD CONSTRAINT "generations_metadata_size" CHECK (pg_column_size(metadata) <= 8388608 and octet_length(metadata::text) <= 1048576) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD CONSTRAINT "generations_metadata_depth" CHECK (not jsonb_path_exists(metadata, '$.**{200}')) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" ADD CONSTRAINT "deliveries_lengths" CHECK (char_length(webhook_id) <= 255 and char_length(key_name) <= 255) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_lengths" CHECK (char_length(model) <= 255 and char_length(key_name) <= 255 and char_length(error_code) <= 255 and char_length(error_message) <= 4000) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_metadata_depth" CHECK (not jsonb_path_exists(metadata, '$.**{200}')) NOT VALID;
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD CONSTRAINT "requests_metadata_size" CHECK (pg_column_size(metadata) <= 8388608 and octet_length(metadata::text) <= 1048576) NOT VALID;
--> statement-breakpoint
-- As before (0017_feed.sql), but for the lock: any role may take an advisory lock, and so could stop the feed. The row of
-- feed_bounds is locked by those alone who may write it. A round that finds nothing takes no lock and writes nothing.
CREATE OR REPLACE FUNCTION "mediadock"."sequence_changes"(since pg_snapshot, most integer, OUT sequenced integer, OUT head bigint, OUT seen pg_snapshot)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
DECLARE
  newer xid8 := coalesce(pg_snapshot_xmax(since), '0'::xid8);
  unfinished xid8[] := array(SELECT pg_snapshot_xip(since));
  base bigint;
  taken_rows bigint;
  is_new boolean;
BEGIN
  SELECT EXISTS (SELECT FROM mediadock.changes WHERE xid >= newer) OR EXISTS (SELECT FROM mediadock.changes WHERE xid = ANY (unfinished)), pg_current_snapshot()
  INTO is_new, seen;
  IF NOT is_new THEN
    sequenced := 0;
    RETURN;
  END IF;
  PERFORM FROM mediadock.feed_bounds FOR UPDATE;
  PERFORM set_config('synchronous_commit', 'on', true);
  SELECT greatest(
    (SELECT position FROM mediadock.feed_entries ORDER BY position DESC LIMIT 1),
    (SELECT pruned_to FROM mediadock.feed_bounds),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1) INTO base;
  WITH due AS (
    SELECT ctid, id FROM mediadock.changes WHERE xid >= newer
    UNION ALL
    SELECT ctid, id FROM mediadock.changes WHERE xid = ANY (unfinished)
  ),
  taken AS (
    DELETE FROM mediadock.changes WHERE ctid = ANY (array(SELECT ctid FROM due ORDER BY id LIMIT most))
    RETURNING id, changed_at, request_ids, statuses, media_complete
  ),
  written AS (
    INSERT INTO mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
    SELECT base + row_number() OVER (ORDER BY t.id, c.n), t.changed_at, c.request_id, c.status, c.media_complete
    FROM taken t, unnest(t.request_ids, t.statuses, t.media_complete) WITH ORDINALITY AS c (request_id, status, media_complete, n)
    RETURNING position
  )
  SELECT (SELECT count(*) FROM taken), count(*), coalesce(max(position), base), pg_current_snapshot() INTO taken_rows, sequenced, head, seen FROM written;
  -- There may be more than was taken: then nothing has been seen through to its end.
  IF taken_rows = most THEN seen := NULL; END IF;
  IF sequenced > 0 THEN PERFORM pg_notify('mediadock_feed', head::text); END IF;
END $$;
--> statement-breakpoint
-- The same for the days of the arrival log: two callers never hold this lock of the catch-all together, and no other role may take it.
CREATE OR REPLACE FUNCTION "mediadock"."make_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
  name text := 'arrivals_' || to_char(day, 'YYYYMMDD');
  first timestamptz := day::timestamp AT TIME ZONE 'UTC';
  next timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
  most_rows constant integer := 100000;
  caught integer;
BEGIN
  IF to_regclass('mediadock.' || name) IS NOT NULL THEN RETURN 'known'; END IF;
  LOCK TABLE mediadock.arrivals_other IN SHARE UPDATE EXCLUSIVE MODE;
  IF to_regclass('mediadock.' || name) IS NOT NULL THEN RETURN 'known'; END IF;
  SELECT count(*) INTO caught FROM (SELECT FROM mediadock.arrivals_other WHERE arrived_at >= first AND arrived_at < next LIMIT most_rows + 1) AS rows;
  IF caught > most_rows THEN RETURN 'in_catch_all'; END IF;
  LOCK TABLE mediadock.arrivals_other IN ACCESS EXCLUSIVE MODE;
  EXECUTE format('CREATE TABLE mediadock.%I (LIKE mediadock.arrivals INCLUDING ALL, CONSTRAINT its_day CHECK (arrived_at >= %L AND arrived_at < %L))', name, first, next);
  EXECUTE format('WITH moved AS (DELETE FROM mediadock.arrivals_other WHERE arrived_at >= %L AND arrived_at < %L RETURNING *) INSERT INTO mediadock.%I SELECT * FROM moved', first, next, name);
  EXECUTE format('ALTER TABLE mediadock.arrivals ATTACH PARTITION mediadock.%I FOR VALUES FROM (%L) TO (%L)', name, first, next);
  -- It spared ATTACH the reading of every row, and says nothing that the bounds do not say.
  EXECUTE format('ALTER TABLE mediadock.%I DROP CONSTRAINT its_day', name);
  RETURN 'made';
EXCEPTION WHEN lock_not_available THEN
  RETURN 'busy';
END $$;
--> statement-breakpoint
CREATE OR REPLACE FUNCTION "mediadock"."drop_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
  name text := 'arrivals_' || to_char(day, 'YYYYMMDD');
BEGIN
  IF to_regclass('mediadock.' || name) IS NULL THEN RETURN 'unknown'; END IF;
  EXECUTE format('DROP TABLE IF EXISTS mediadock.%I', name);
  RETURN 'dropped';
EXCEPTION WHEN lock_not_available THEN
  RETURN 'busy';
END $$;
--> statement-breakpoint
ALTER FUNCTION "mediadock"."require_media"() SET search_path = pg_catalog, pg_temp;
--> statement-breakpoint
ALTER FUNCTION "mediadock"."rolled_back"(jsonb) SET search_path = pg_catalog, pg_temp;
