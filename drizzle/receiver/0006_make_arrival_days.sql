-- Days of the arrival log come and go while everything runs, a dump included, whose locks
-- must not hold anybody up: each lock is waited for 200 ms, one replica tries at a time,
-- and what could not be done is tried again later. Both run as the owner of the schema,
-- so that a role that may only read and write rows can make and drop days too.

-- Makes the table of a day beside the log and attaches it: ATTACH lets inserts and readers
-- of the log go on. It needs the catch-all to itself, and moves the day's rows out of it; where
-- those are too many for one short statement, the day stays in the catch-all ('in_catch_all').
-- Answers 'made', 'known', 'in_catch_all', or 'busy' for another replica or a lock in the way.
CREATE FUNCTION "mediadock"."make_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
  name text := 'arrivals_' || to_char(day, 'YYYYMMDD');
  first timestamptz := day::timestamp AT TIME ZONE 'UTC';
  next timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
  most_rows constant integer := 100000;
  caught integer;
BEGIN
  IF NOT pg_try_advisory_xact_lock(7120241122) THEN RETURN 'busy'; END IF;
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
-- Drops the table of a day with all its rows. Answers 'dropped', 'unknown', or 'busy'.
CREATE FUNCTION "mediadock"."drop_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
  name text := 'arrivals_' || to_char(day, 'YYYYMMDD');
BEGIN
  IF NOT pg_try_advisory_xact_lock(7120241122) THEN RETURN 'busy'; END IF;
  IF to_regclass('mediadock.' || name) IS NULL THEN RETURN 'unknown'; END IF;
  EXECUTE format('DROP TABLE mediadock.%I', name);
  RETURN 'dropped';
EXCEPTION WHEN lock_not_available THEN
  RETURN 'busy';
END $$;
--> statement-breakpoint
REVOKE EXECUTE ON FUNCTION "mediadock"."make_arrival_day"(date), "mediadock"."drop_arrival_day"(date) FROM PUBLIC;
