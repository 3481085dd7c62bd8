CREATE TABLE "mediadock"."changes" (
	"xid" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	"id" bigserial NOT NULL,
	"changed_at" timestamp with time zone NOT NULL,
	"request_ids" uuid[] NOT NULL,
	"statuses" smallint[] NOT NULL,
	"media_complete" boolean[] NOT NULL,
	CONSTRAINT "changes_xid_id_pk" PRIMARY KEY("xid","id")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_bounds" (
	"single" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"pruned_to" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "feed_bounds_single" CHECK (single)
);
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_consumers" (
	"name" text PRIMARY KEY NOT NULL,
	"position" bigint DEFAULT 0 NOT NULL,
	"moved_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_entries" (
	"position" bigint PRIMARY KEY NOT NULL,
	"changed_at" timestamp with time zone NOT NULL,
	"request_id" uuid NOT NULL,
	"status" smallint NOT NULL,
	"media_complete" boolean NOT NULL
);
--> statement-breakpoint
CREATE VIEW "mediadock"."feed" AS (
  select position, request_id, case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' end as status, media_complete, changed_at
  from mediadock.feed_entries);
--> statement-breakpoint
INSERT INTO "mediadock"."feed_bounds" DEFAULT VALUES;
--> statement-breakpoint
-- A queue: rows come and go, and one holds what a whole statement landed, so it is kept in one piece.
ALTER TABLE "mediadock"."changes" SET (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
--> statement-breakpoint
-- Only ever written at its end, and pruned at its beginning: no page is split in the middle.
ALTER INDEX "mediadock"."feed_entries_pkey" SET (fillfactor = 100);
--> statement-breakpoint
-- Gives positions to what has landed, one caller at a time, so that they become visible in order: whoever holds
-- the lock has committed, or given up, before the next one looks. Each statement in here has a snapshot of its own,
-- and so one that is newer than the lock. `since` is what a call before has seen through to its end on this
-- very server; without it all of `changes` is looked through. Positions are microseconds, so that they also grow
-- from one history of a database to another (a standby that was behind, a dump that was restored).
CREATE FUNCTION "mediadock"."sequence_changes"(since pg_snapshot, most integer, OUT sequenced integer, OUT head bigint, OUT seen pg_snapshot)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
DECLARE
  newer xid8 := coalesce(pg_snapshot_xmax(since), '0'::xid8);
  unfinished xid8[] := array(SELECT pg_snapshot_xip(since));
  base bigint;
  taken_rows bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(7120241123), set_config('synchronous_commit', 'on', true);
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
REVOKE ALL ON FUNCTION "mediadock"."sequence_changes"(pg_snapshot, integer) FROM PUBLIC;
--> statement-breakpoint
-- The position, if all that came after it is still kept; otherwise an error that says so. 0 is the beginning of what is kept.
CREATE FUNCTION "mediadock"."still_kept"("after" bigint) RETURNS bigint
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  kept_after bigint := (SELECT pruned_to FROM mediadock.feed_bounds);
BEGIN
  IF "after" IS NULL OR "after" < 0 THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'a position of mediadock.feed is 0 or more',
      HINT = 'Begin with 0, and go on from the position of the last row that was read.';
  END IF;
  IF "after" > 0 AND "after" < kept_after THEN
    RAISE EXCEPTION USING ERRCODE = 'MD002', MESSAGE = format('changes after position %s are no longer kept: the feed goes back to %s', "after", kept_after),
      HINT = 'What changed in between stands in mediadock.results: read that, and go on from 0.';
  END IF;
  RETURN "after";
END $$;--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."still_kept"(bigint) FROM PUBLIC;
--> statement-breakpoint
-- A result that a service's own words join (metadata, model, the key) after it landed is another to its readers.
CREATE FUNCTION "mediadock"."note_joined"() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO mediadock.changes (changed_at, request_ids, statuses, media_complete)
  VALUES (clock_timestamp(), array[NEW.request_id], array[CASE NEW.status WHEN 'COMPLETED' THEN 1 WHEN 'FAILED' THEN 2 ELSE 3 END::smallint], array[NEW.media_complete]);
  RETURN NULL;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."note_joined"() FROM PUBLIC;
--> statement-breakpoint
CREATE TRIGGER "requests_note_joined" AFTER UPDATE OF metadata ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NOT NULL AND (NEW.metadata, NEW.model, NEW.key_name, NEW.sandbox) IS DISTINCT FROM (OLD.metadata, OLD.model, OLD.key_name, OLD.sandbox))
EXECUTE FUNCTION "mediadock"."note_joined"();
