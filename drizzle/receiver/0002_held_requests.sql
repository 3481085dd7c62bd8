-- Returns the requests whose rows another transaction holds, at this moment. A row that it inserted and has not committed
-- is among them, although no query sees it. Each request is tried for a millisecond, and what the try did is rolled back.
CREATE FUNCTION "mediadock"."held_requests"(request_ids uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $$
DECLARE
  id uuid;
BEGIN
  FOREACH id IN ARRAY request_ids LOOP
    BEGIN
      PERFORM FROM mediadock.requests WHERE request_id = id FOR UPDATE NOWAIT;
      -- The key_source keeps the trigger out that joins a service's own values.
      IF NOT FOUND THEN
        INSERT INTO mediadock.requests (request_id, key_source) VALUES (id, 'landed') ON CONFLICT DO NOTHING;
      END IF;
      RAISE EXCEPTION USING ERRCODE = 'MD003', MESSAGE = 'not held';
    EXCEPTION
      WHEN lock_not_available THEN RETURN NEXT id;
      WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END $$;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."held_requests"(uuid[]) FROM PUBLIC;
