-- A session that keeps a transaction open after LISTEN lets the NOTIFY queue of the server grow. Once it is full, every
-- commit that notifies fails. Notifications are only hints, so none are sent from half of it on.
CREATE FUNCTION "mediadock"."may_notify"() RETURNS boolean
  LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
  RETURN pg_notification_queue_usage() < 0.5;
--> statement-breakpoint
-- As before, but for the guard of its notification.
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
  IF sequenced > 0 AND mediadock.may_notify() THEN PERFORM pg_notify('mediadock_feed', head::text); END IF;
END $$;
