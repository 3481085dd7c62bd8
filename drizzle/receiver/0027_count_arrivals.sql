CREATE TABLE "mediadock"."arrival_counts" (
	"minute" timestamp with time zone NOT NULL,
	"outcome" text NOT NULL,
	"reason" text NOT NULL,
	"arrivals" bigint NOT NULL,
	CONSTRAINT "arrival_counts_minute_outcome_reason_pk" PRIMARY KEY("minute","outcome","reason")
);
--> statement-breakpoint
-- Counts what a statement has written to the log, whoever wrote it. In the order of the key, so that two never wait for each other.
CREATE FUNCTION "mediadock"."count_arrivals"() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO mediadock.arrival_counts AS c (minute, outcome, reason, arrivals)
  SELECT date_trunc('minute', arrived_at), outcome, coalesce(reason, ''), sum(1 + folded) FROM arrived GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
  ON CONFLICT (minute, outcome, reason) DO UPDATE SET arrivals = c.arrivals + excluded.arrivals;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "arrivals_counted" AFTER INSERT ON "mediadock"."arrivals" REFERENCING NEW TABLE AS arrived
FOR EACH STATEMENT EXECUTE FUNCTION "mediadock"."count_arrivals"();
--> statement-breakpoint
-- What the first page counts is of the last five minutes.
INSERT INTO "mediadock"."arrival_counts" (minute, outcome, reason, arrivals)
SELECT date_trunc('minute', arrived_at), outcome, coalesce(reason, ''), sum(1 + folded) FROM "mediadock"."arrivals"
WHERE arrived_at >= now() - interval '10 minutes' GROUP BY 1, 2, 3;
