CREATE TABLE "mediadock"."audit" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"via" text NOT NULL,
	"actor" text NOT NULL,
	"action" text NOT NULL,
	"target" text,
	"detail" jsonb
);
--> statement-breakpoint
CREATE TABLE "mediadock"."key_uses" (
	"key_name" text PRIMARY KEY NOT NULL,
	"first_match_at" timestamp with time zone NOT NULL,
	"last_match_at" timestamp with time zone NOT NULL,
	"matches" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."minutes" (
	"minute" timestamp with time zone PRIMARY KEY NOT NULL,
	"written_at" timestamp with time zone NOT NULL,
	"arrivals" jsonb NOT NULL,
	"ack_p50_ms" real,
	"ack_p95_ms" real,
	"landed" integer NOT NULL,
	"landing_p50_seconds" real,
	"landing_p95_seconds" real,
	"inbox_pending" integer,
	"inbox_oldest_seconds" real,
	"overdue" integer
);
--> statement-breakpoint
CREATE TABLE "mediadock"."polls" (
	"request_id" uuid NOT NULL,
	"polled_at" timestamp with time zone NOT NULL,
	"key_name" text NOT NULL,
	"outcome" text NOT NULL,
	"detail" text,
	CONSTRAINT "polls_request_id_polled_at_key_name_pk" PRIMARY KEY("request_id","polled_at","key_name")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."process_starts" (
	"started_at" timestamp with time zone NOT NULL,
	"host" text NOT NULL,
	"pid" integer NOT NULL,
	"version" text NOT NULL,
	CONSTRAINT "process_starts_started_at_host_pid_pk" PRIMARY KEY("started_at","host","pid")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."reconcile_runs" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone NOT NULL,
	"trigger" text NOT NULL,
	"outcome" text NOT NULL,
	"idle_runs" integer DEFAULT 0 NOT NULL,
	"scanned" integer DEFAULT 0 NOT NULL,
	"landed" integer DEFAULT 0 NOT NULL,
	"running" integer DEFAULT 0 NOT NULL,
	"not_found" integer DEFAULT 0 NOT NULL,
	"failed" integer DEFAULT 0 NOT NULL,
	"postponed" integer DEFAULT 0 NOT NULL,
	"rate_limited" integer DEFAULT 0 NOT NULL,
	"error" text
);
--> statement-breakpoint
CREATE INDEX "audit_at" ON "mediadock"."audit" USING btree ("at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "polls_age" ON "mediadock"."polls" USING brin ("polled_at");--> statement-breakpoint
CREATE INDEX "arrivals_outcome" ON "mediadock"."arrivals" USING btree ("outcome","arrived_at","id") WHERE outcome <> 'accepted';--> statement-breakpoint
CREATE INDEX "arrivals_reason" ON "mediadock"."arrivals" USING btree ("reason","arrived_at","id") WHERE reason is not null;--> statement-breakpoint
CREATE INDEX "attempts_unusual" ON "mediadock"."attempts" USING btree ("outcome","delivery_id") WHERE outcome <> 'landed';--> statement-breakpoint
CREATE INDEX "requests_unusual" ON "mediadock"."requests" USING btree ("status","tracked_at" DESC NULLS LAST,"request_id" DESC NULLS LAST) WHERE status in ('FAILED', 'CANCELED');--> statement-breakpoint
INSERT INTO "mediadock"."key_uses" (key_name, first_match_at, last_match_at, matches)
SELECT key_name, min(first), max(last), sum(matches) FROM (
  SELECT key_name, min(arrived_at) AS first, max(arrived_at) AS last, sum(1 + folded) AS matches FROM "mediadock"."arrivals" WHERE key_name IS NOT NULL GROUP BY key_name
  UNION ALL
  SELECT key_name, min(received_at), max(received_at), 0 FROM "mediadock"."deliveries" GROUP BY key_name
) AS used GROUP BY key_name;
