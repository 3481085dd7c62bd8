CREATE SCHEMA IF NOT EXISTS "mediadock";
--> statement-breakpoint
CREATE TABLE "mediadock"."arrivals" (
	"id" bigserial NOT NULL,
	"arrived_at" timestamp with time zone NOT NULL,
	"outcome" text NOT NULL,
	"reason" text,
	"status" smallint NOT NULL,
	"webhook_id" text,
	"delivery_id" uuid,
	"request_id" uuid,
	"key_name" text,
	"remote" text,
	"bytes" integer,
	"skew_seconds" integer,
	"ack_ms" real NOT NULL,
	"folded" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "arrivals_arrived_at_id_pk" PRIMARY KEY("arrived_at","id")
) PARTITION BY RANGE ("arrived_at");
--> statement-breakpoint
-- Days are made ahead by the program; what no day covers (a clock that jumped) is caught here.
CREATE TABLE "mediadock"."arrivals_other" PARTITION OF "mediadock"."arrivals" DEFAULT;
--> statement-breakpoint
CREATE TABLE "mediadock"."attempts" (
	"delivery_id" uuid NOT NULL,
	"attempted_at" timestamp with time zone NOT NULL,
	"outcome" text NOT NULL,
	"detail" text,
	CONSTRAINT "attempts_delivery_id_attempted_at_pk" PRIMARY KEY("delivery_id","attempted_at")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."call_budgets" (
	"key_name" text PRIMARY KEY NOT NULL,
	"slots" integer[] NOT NULL,
	"slots_until" bigint NOT NULL,
	"granted" boolean NOT NULL,
	"blocked_until" timestamp with time zone,
	"blocked_reason" text
);
--> statement-breakpoint
CREATE TABLE "mediadock"."deliveries" (
	"id" uuid PRIMARY KEY NOT NULL,
	"webhook_id" text NOT NULL,
	"request_id" uuid,
	"status" text,
	"key_name" text NOT NULL,
	"signed_at" timestamp with time zone NOT NULL,
	"received_at" timestamp with time zone NOT NULL,
	"headers" jsonb NOT NULL,
	"body" "bytea" NOT NULL,
	"flags" text[] DEFAULT '{}' NOT NULL,
	"parked_reason" text
);
--> statement-breakpoint
CREATE TABLE "mediadock"."inbox" (
	"delivery_id" uuid PRIMARY KEY NOT NULL,
	"lane" text NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL,
	"failures" smallint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."media" (
	"request_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"position" integer NOT NULL,
	"url" text NOT NULL,
	"original_url" text,
	"width" integer,
	"height" integer,
	"duration_seconds" double precision,
	CONSTRAINT "media_request_id_kind_position_pk" PRIMARY KEY("request_id","kind","position")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."quarantine" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"arrived_at" timestamp with time zone NOT NULL,
	"reason" text NOT NULL,
	"webhook_id" text,
	"headers" jsonb NOT NULL,
	"body" "bytea" NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."requests" (
	"request_id" uuid PRIMARY KEY NOT NULL,
	"status" text DEFAULT 'IN_QUEUE' NOT NULL,
	"model" text,
	"key_name" text,
	"sandbox" boolean,
	"metadata" jsonb,
	"output" jsonb,
	"media_complete" boolean DEFAULT false NOT NULL,
	"cost" numeric,
	"error_code" text,
	"error_message" text,
	"created_at" timestamp with time zone,
	"completed_at" timestamp with time zone,
	"source" text,
	"tracked_at" timestamp with time zone DEFAULT now() NOT NULL,
	"landed_at" timestamp with time zone,
	"confirmed_at" timestamp with time zone,
	"next_poll_at" timestamp with time zone,
	"polls" integer DEFAULT 0 NOT NULL,
	"polled_at" timestamp with time zone,
	"poll_outcome" text,
	CONSTRAINT "requests_status" CHECK (status in ('IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED'))
);
--> statement-breakpoint
CREATE INDEX "arrivals_delivery" ON "mediadock"."arrivals" USING btree ("delivery_id");--> statement-breakpoint
CREATE INDEX "deliveries_received" ON "mediadock"."deliveries" USING btree ("received_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "deliveries_request" ON "mediadock"."deliveries" USING btree ("request_id");--> statement-breakpoint
CREATE INDEX "deliveries_parked" ON "mediadock"."deliveries" USING btree ("received_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE parked_reason is not null;--> statement-breakpoint
CREATE INDEX "inbox_due" ON "mediadock"."inbox" USING btree ("lane","due_at");--> statement-breakpoint
CREATE INDEX "quarantine_arrived" ON "mediadock"."quarantine" USING btree ("arrived_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "requests_open" ON "mediadock"."requests" USING btree (coalesce(next_poll_at, tracked_at)) WHERE landed_at is null or next_poll_at is not null;--> statement-breakpoint
CREATE INDEX "requests_tracked" ON "mediadock"."requests" USING btree ("tracked_at" DESC NULLS LAST,"request_id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "requests_landed" ON "mediadock"."requests" USING btree ("landed_at" DESC NULLS LAST) WHERE landed_at is not null;--> statement-breakpoint
CREATE VIEW "mediadock"."results" AS (
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata
  from mediadock.requests);
--> statement-breakpoint
-- A queue table is rewritten all the time: keep room on its pages, and sweep it often.
ALTER TABLE "mediadock"."inbox" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
