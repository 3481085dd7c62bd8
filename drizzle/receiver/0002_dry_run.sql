-- Ends a statement with an error that carries its result: everything it wrote is
-- rolled back, and what it would have done is known. See replay.ts.
CREATE FUNCTION "mediadock"."rolled_back"(result jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'MD001', MESSAGE = 'dry run', DETAIL = result::text;
END $$;
