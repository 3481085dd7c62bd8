-- Intake: the log of arrivals, the quarantine, what is known of keys and senders.
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
CREATE INDEX "arrivals_delivery" ON "mediadock"."arrivals" USING btree ("delivery_id");
--> statement-breakpoint
CREATE INDEX "arrivals_outcome" ON "mediadock"."arrivals" USING btree ("outcome","arrived_at","id") WHERE outcome <> 'accepted';
--> statement-breakpoint
CREATE INDEX "arrivals_unstored" ON "mediadock"."arrivals" USING btree ("request_id") WHERE outcome = 'unavailable';
--> statement-breakpoint
CREATE INDEX "arrivals_reason" ON "mediadock"."arrivals" USING btree ("reason","arrived_at","id") WHERE reason is not null;
--> statement-breakpoint
-- The program makes the table of each day ahead. Rows that no day covers (a clock that jumped) go here.
CREATE TABLE "mediadock"."arrivals_other" PARTITION OF "mediadock"."arrivals" DEFAULT;
--> statement-breakpoint
CREATE TABLE "mediadock"."arrival_counts" (
	"minute" timestamp with time zone NOT NULL,
	"outcome" text NOT NULL,
	"reason" text NOT NULL,
	"arrivals" bigint NOT NULL,
	CONSTRAINT "arrival_counts_minute_outcome_reason_pk" PRIMARY KEY("minute","outcome","reason")
);
--> statement-breakpoint
CREATE TABLE "mediadock"."quarantine" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"arrived_at" timestamp with time zone NOT NULL,
	"reason" text NOT NULL,
	"webhook_id" text,
	"request_id" uuid,
	"headers" jsonb NOT NULL,
	"body" "bytea" NOT NULL,
	"bytes" integer GENERATED ALWAYS AS (octet_length(body) + octet_length(headers::text)) STORED,
	"source" text
);
--> statement-breakpoint
CREATE INDEX "quarantine_arrived" ON "mediadock"."quarantine" USING btree ("arrived_at" DESC NULLS LAST,"id" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "quarantine_request" ON "mediadock"."quarantine" USING btree ("request_id") WHERE request_id is not null;
--> statement-breakpoint
-- Compressing a stranger’s body costs more time than everything else about it.
ALTER TABLE "mediadock"."quarantine" ALTER COLUMN "body" SET STORAGE EXTERNAL;
--> statement-breakpoint
CREATE TABLE "mediadock"."key_uses" (
	"key_name" text PRIMARY KEY NOT NULL,
	"first_match_at" timestamp with time zone NOT NULL,
	"last_match_at" timestamp with time zone NOT NULL,
	"matches" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."known_senders" (
	"key_name" text NOT NULL,
	"source" text NOT NULL,
	"last_at" timestamp with time zone NOT NULL,
	CONSTRAINT "known_senders_key_name_source_pk" PRIMARY KEY("key_name","source")
);
--> statement-breakpoint
-- Deliveries: the inbox and its history.
CREATE TABLE "mediadock"."deliveries" (
	"id" uuid PRIMARY KEY NOT NULL,
	"webhook_id" text NOT NULL,
	"request_id" uuid,
	"status" text,
	"key_name" text NOT NULL,
	"environment" text,
	"signed_at" timestamp with time zone NOT NULL,
	"received_at" timestamp with time zone NOT NULL,
	"headers" jsonb NOT NULL,
	"body" "bytea" NOT NULL,
	"flags" text[] DEFAULT '{}' NOT NULL,
	"parked_reason" text,
	CONSTRAINT "deliveries_environment" CHECK (environment in ('live', 'sandbox', 'unknown')),
	CONSTRAINT "deliveries_lengths" CHECK (char_length(webhook_id) <= 255 and char_length(key_name) <= 255)
);
--> statement-breakpoint
CREATE INDEX "deliveries_received" ON "mediadock"."deliveries" USING btree ("received_at" DESC NULLS LAST,"id" DESC NULLS LAST,"key_name");
--> statement-breakpoint
CREATE INDEX "deliveries_request" ON "mediadock"."deliveries" USING btree ("request_id");
--> statement-breakpoint
CREATE INDEX "deliveries_parked" ON "mediadock"."deliveries" USING btree ("received_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE parked_reason is not null;
--> statement-breakpoint
CREATE INDEX "deliveries_flagged" ON "mediadock"."deliveries" USING btree ("received_at" DESC NULLS LAST,"id" DESC NULLS LAST) WHERE flags <> '{}';
--> statement-breakpoint
-- Autovacuum waits by default until a fifth of a table is dead: gigabytes, for a month of deliveries. These tables are
-- swept from a fiftieth on. fillfactor does not help requests, whose updates all write to an index.
ALTER TABLE "mediadock"."deliveries" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
--> statement-breakpoint
CREATE TABLE "mediadock"."inbox" (
	"delivery_id" uuid PRIMARY KEY NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL,
	"failures" smallint DEFAULT 0 NOT NULL,
	"trouble" text
);
--> statement-breakpoint
CREATE INDEX "inbox_due_at" ON "mediadock"."inbox" USING btree ("due_at");
--> statement-breakpoint
-- A queue rewrites its rows all the time: keep room on its pages, and sweep it often.
ALTER TABLE "mediadock"."inbox" SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
--> statement-breakpoint
CREATE TABLE "mediadock"."attempts" (
	"delivery_id" uuid NOT NULL,
	"attempted_at" timestamp with time zone NOT NULL,
	"outcome" text NOT NULL,
	"detail" text,
	CONSTRAINT "attempts_delivery_id_attempted_at_pk" PRIMARY KEY("delivery_id","attempted_at")
);
--> statement-breakpoint
CREATE INDEX "attempts_unusual" ON "mediadock"."attempts" USING btree ("outcome","delivery_id") WHERE outcome <> 'landed';
--> statement-breakpoint
ALTER TABLE "mediadock"."attempts" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
--> statement-breakpoint
-- Results: what is tracked and what landed.
CREATE TABLE "mediadock"."requests" (
	"request_id" uuid PRIMARY KEY NOT NULL,
	"status" text DEFAULT 'IN_QUEUE' NOT NULL,
	"model" text,
	"key_name" text,
	"key_source" text,
	"sandbox" boolean,
	"signed_sandbox" boolean,
	"metadata" jsonb,
	"idempotency_key" uuid,
	"items_wanted" smallint,
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
	"doubt_poll_at" timestamp with time zone,
	"polls" integer DEFAULT 0 NOT NULL,
	"polled_at" timestamp with time zone,
	"poll_outcome" text,
	"poll_detail" text,
	CONSTRAINT "requests_lengths" CHECK (char_length(model) <= 255 and char_length(key_name) <= 255 and char_length(error_code) <= 255 and char_length(error_message) <= 4000),
	CONSTRAINT "requests_metadata_size" CHECK (pg_column_size(metadata) <= 8388608 and octet_length(metadata::text) <= 1048576),
	CONSTRAINT "requests_metadata_depth" CHECK (not jsonb_path_exists(metadata, '$.**{200}')),
	CONSTRAINT "requests_times" CHECK (tracked_at >= '1000-01-01 00:00:00+00' and tracked_at < '9999-01-01 00:00:00+00' and created_at >= '1000-01-01 00:00:00+00' and created_at < '9999-01-01 00:00:00+00' and completed_at >= '1000-01-01 00:00:00+00' and completed_at < '9999-01-01 00:00:00+00' and landed_at >= '1000-01-01 00:00:00+00' and landed_at < '9999-01-01 00:00:00+00' and confirmed_at >= '1000-01-01 00:00:00+00' and confirmed_at < '9999-01-01 00:00:00+00'),
	CONSTRAINT "requests_poll_times" CHECK (polled_at >= '1000-01-01 00:00:00+00' and polled_at < '9999-01-01 00:00:00+00' and doubt_poll_at >= '1000-01-01 00:00:00+00' and doubt_poll_at < '9999-01-01 00:00:00+00' and (next_poll_at = 'infinity' or next_poll_at >= '1000-01-01 00:00:00+00' and next_poll_at < '9999-01-01 00:00:00+00')),
	CONSTRAINT "requests_polls" CHECK (polls >= 0),
	CONSTRAINT "requests_status" CHECK (status in ('IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED')),
	CONSTRAINT "requests_key_source" CHECK (key_source in ('tracked', 'landed')),
	CONSTRAINT "requests_landed" CHECK ((landed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELED')) and (landed_at is not null or (source is null and confirmed_at is null)))
);
--> statement-breakpoint
CREATE INDEX "requests_open" ON "mediadock"."requests" USING btree (coalesce(next_poll_at, tracked_at)) WHERE landed_at is null or next_poll_at is not null;
--> statement-breakpoint
CREATE INDEX "requests_unended" ON "mediadock"."requests" USING btree ("tracked_at","next_poll_at") WHERE landed_at is null;
--> statement-breakpoint
CREATE INDEX "requests_turns" ON "mediadock"."requests" USING btree (coalesce(key_name, ''),coalesce(status = 'COMPLETED' and (items_wanted = 1 or (output -> 'images') is null), false),"next_poll_at") WHERE next_poll_at is not null;
--> statement-breakpoint
CREATE INDEX "requests_held_up" ON "mediadock"."requests" USING btree (coalesce(key_name, ''),"polled_at") WHERE next_poll_at is not null and poll_outcome in ('unreachable', 'postponed');
--> statement-breakpoint
CREATE INDEX "requests_idempotency_key" ON "mediadock"."requests" USING btree ("idempotency_key") WHERE idempotency_key is not null;
--> statement-breakpoint
CREATE INDEX "requests_doubted" ON "mediadock"."requests" USING btree ("doubt_poll_at") WHERE doubt_poll_at is not null;
--> statement-breakpoint
CREATE INDEX "requests_tracked" ON "mediadock"."requests" USING btree ("tracked_at" DESC NULLS LAST,"request_id" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "requests_landed" ON "mediadock"."requests" USING btree ("landed_at" DESC NULLS LAST) WHERE landed_at is not null;
--> statement-breakpoint
CREATE INDEX "requests_unusual" ON "mediadock"."requests" USING btree ("status","tracked_at" DESC NULLS LAST,"request_id" DESC NULLS LAST) WHERE status in ('FAILED', 'CANCELED');
--> statement-breakpoint
ALTER TABLE "mediadock"."requests" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
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
	"archived_url" text,
	"bytes" bigint,
	"content_type" text,
	"sha256" text,
	"archived_at" timestamp with time zone,
	"archive_error" text,
	CONSTRAINT "media_request_id_kind_position_pk" PRIMARY KEY("request_id","kind","position")
);
--> statement-breakpoint
ALTER TABLE "mediadock"."media" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
--> statement-breakpoint
-- Submitting and reconciling.
CREATE TABLE "mediadock"."generations" (
	"idempotency_key" uuid PRIMARY KEY NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"model" text NOT NULL,
	"input" jsonb NOT NULL,
	"key_name" text NOT NULL,
	"webhook_url" text,
	"metadata" jsonb,
	"created_at" timestamp with time zone NOT NULL,
	"request_id" uuid,
	"cost" numeric,
	"next_attempt_at" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"in_doubt_from" integer,
	"promised" boolean DEFAULT false NOT NULL,
	"answer_status" smallint,
	"answer" jsonb,
	"last_error" text,
	CONSTRAINT "generations_lengths" CHECK (char_length(model) <= 255 and char_length(key_name) <= 255),
	CONSTRAINT "generations_metadata_size" CHECK (pg_column_size(metadata) <= 8388608 and octet_length(metadata::text) <= 1048576),
	CONSTRAINT "generations_metadata_depth" CHECK (not jsonb_path_exists(metadata, '$.**{200}'))
);
--> statement-breakpoint
CREATE INDEX "generations_due" ON "mediadock"."generations" USING btree ("next_attempt_at") WHERE state = 'pending';
--> statement-breakpoint
CREATE INDEX "generations_request" ON "mediadock"."generations" USING btree ("request_id");
--> statement-breakpoint
CREATE TABLE "mediadock"."call_budgets" (
	"key_name" text PRIMARY KEY NOT NULL,
	"slots" integer[] NOT NULL,
	"submit_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL,
	"trial_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL,
	"missed_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL,
	"missed_submit_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL,
	"slots_until" bigint NOT NULL,
	"granted" boolean NOT NULL,
	"blocked_until" timestamp with time zone,
	"blocked_reason" text,
	"refusals" integer DEFAULT 0 NOT NULL,
	"failing_since" timestamp with time zone,
	"recovered_at" timestamp with time zone
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
CREATE INDEX "polls_age" ON "mediadock"."polls" USING brin ("polled_at");
--> statement-breakpoint
ALTER TABLE "mediadock"."polls" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
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
-- The feed and its readers.
CREATE TABLE "mediadock"."changes" (
	"xid" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	"id" bigserial NOT NULL,
	"changed_at" timestamp with time zone NOT NULL,
	"request_ids" uuid[] NOT NULL,
	"statuses" smallint[] NOT NULL,
	"media_complete" boolean[] NOT NULL,
	CONSTRAINT "changes_xid_id_pk" PRIMARY KEY("xid","id"),
	CONSTRAINT "changes_aligned" CHECK (cardinality(request_ids) = cardinality(statuses) and cardinality(request_ids) = cardinality(media_complete)
        and array_position(request_ids, null) is null and array_position(statuses, null) is null and array_position(media_complete, null) is null)
);
--> statement-breakpoint
-- A queue. One row holds the changes of a whole statement, so it is kept in one piece.
ALTER TABLE "mediadock"."changes" SET (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_entries" (
	"position" bigint PRIMARY KEY NOT NULL,
	"changed_at" timestamp with time zone NOT NULL,
	"request_id" uuid NOT NULL,
	"status" smallint NOT NULL,
	"media_complete" boolean NOT NULL
);
--> statement-breakpoint
-- Written only at its end and pruned at its beginning: no page splits in the middle.
ALTER INDEX "mediadock"."feed_entries_pkey" SET (fillfactor = 100);
--> statement-breakpoint
ALTER TABLE "mediadock"."feed_entries" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_bounds" (
	"single" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"pruned_to" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "feed_bounds_single" CHECK (single)
);
--> statement-breakpoint
INSERT INTO "mediadock"."feed_bounds" DEFAULT VALUES;
--> statement-breakpoint
CREATE TABLE "mediadock"."feed_consumers" (
	"name" text PRIMARY KEY NOT NULL,
	"position" bigint DEFAULT 0 NOT NULL,
	"moved_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "mediadock"."subscriptions" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"name" text NOT NULL,
	"url" text NOT NULL,
	"secret" text NOT NULL,
	"retry_hours" integer DEFAULT 24 NOT NULL,
	"only_complete" boolean DEFAULT false NOT NULL,
	"state" text DEFAULT 'active' NOT NULL,
	"position" bigint NOT NULL,
	"ahead" bigint[] DEFAULT '{}' NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	"failing_since" timestamp with time zone,
	"next_attempt_at" timestamp with time zone DEFAULT now() NOT NULL,
	"last_error" text,
	"last_accepted_at" timestamp with time zone,
	"paused_by" text,
	"paused_at" timestamp with time zone,
	"stopped_at" timestamp with time zone,
	"stop_reason" text,
	"claims" integer DEFAULT 0 NOT NULL,
	"leased_until" timestamp with time zone DEFAULT now() NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "subscriptions_name" UNIQUE("name")
);
--> statement-breakpoint
-- The archive.
CREATE TABLE "mediadock"."archive_progress" (
	"single" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"position" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "archive_progress_single" CHECK (single)
);
--> statement-breakpoint
INSERT INTO "mediadock"."archive_progress" DEFAULT VALUES;
--> statement-breakpoint
CREATE TABLE "mediadock"."media_copies" (
	"request_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"position" integer NOT NULL,
	"url" text NOT NULL,
	"state" text NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL,
	"unended" smallint DEFAULT 0 NOT NULL,
	"tries" smallint DEFAULT 0 NOT NULL,
	"fault" text,
	"trouble" text,
	"sha256" text,
	"ended_at" timestamp with time zone,
	CONSTRAINT "media_copies_request_id_kind_position_pk" PRIMARY KEY("request_id","kind","position")
);
--> statement-breakpoint
CREATE INDEX "media_copies_due" ON "mediadock"."media_copies" USING btree ("due_at") WHERE state = 'waiting';
--> statement-breakpoint
CREATE INDEX "media_copies_file" ON "mediadock"."media_copies" USING btree ("sha256") WHERE sha256 is not null;
--> statement-breakpoint
CREATE INDEX "media_copies_archived" ON "mediadock"."media_copies" USING btree ("ended_at") WHERE state = 'archived';
--> statement-breakpoint
CREATE INDEX "media_copies_failed" ON "mediadock"."media_copies" USING btree ("ended_at") WHERE state = 'failed';
--> statement-breakpoint
-- A queue: copies are claimed and settled, and a narrow index finds the waiting ones.
ALTER TABLE "mediadock"."media_copies" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
--> statement-breakpoint
CREATE TABLE "mediadock"."archived_files" (
	"sha256" text PRIMARY KEY NOT NULL,
	"bytes" bigint NOT NULL,
	"content_type" text NOT NULL,
	"incarnation" uuid DEFAULT '00000000-0000-0000-0000-000000000000' NOT NULL,
	"has_thumbnail" boolean DEFAULT false NOT NULL,
	"stored_at" timestamp with time zone,
	"look_at" timestamp with time zone,
	"removing_at" timestamp with time zone
);
--> statement-breakpoint
CREATE INDEX "archived_files_look" ON "mediadock"."archived_files" USING btree ("look_at") WHERE look_at is not null;
--> statement-breakpoint
-- On call: charts, issues, replays, the audit, sessions.
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
CREATE TABLE "mediadock"."issues" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"cause" text NOT NULL,
	"severity" text NOT NULL,
	"text" text NOT NULL,
	"href" text NOT NULL,
	"count" integer,
	"peak" integer,
	"samples" integer[] DEFAULT '{}' NOT NULL,
	"sample_seconds" integer DEFAULT 10 NOT NULL,
	"affected" text[] DEFAULT '{}' NOT NULL,
	"opened_at" timestamp with time zone NOT NULL,
	"seen_at" timestamp with time zone NOT NULL,
	"worsened_at" timestamp with time zone,
	"closed_at" timestamp with time zone,
	"muted_until" timestamp with time zone,
	"muted_by" text,
	"untold" text,
	"tell_at" timestamp with time zone,
	"tell_tries" smallint DEFAULT 0 NOT NULL,
	"told_count" integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX "issues_open" ON "mediadock"."issues" USING btree ("cause") WHERE closed_at is null;
--> statement-breakpoint
CREATE INDEX "issues_opened" ON "mediadock"."issues" USING btree ("opened_at" DESC NULLS LAST,"id" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "issues_untold" ON "mediadock"."issues" USING btree ("tell_at") WHERE untold is not null;
--> statement-breakpoint
CREATE TABLE "mediadock"."replay_jobs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"actor" text NOT NULL,
	"filters" jsonb NOT NULL,
	"count" integer NOT NULL,
	"state" text NOT NULL,
	"ended_at" timestamp with time zone,
	"stopping" boolean DEFAULT false NOT NULL,
	"cursor" text,
	"replayed" integer DEFAULT 0 NOT NULL,
	"changed" integer DEFAULT 0 NOT NULL,
	"failed" integer DEFAULT 0 NOT NULL,
	"changes" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"failures" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"problem" text,
	"leased_until" timestamp with time zone NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE INDEX "replay_jobs_running" ON "mediadock"."replay_jobs" USING btree ("leased_until") WHERE state = 'running';
--> statement-breakpoint
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
CREATE INDEX "audit_at" ON "mediadock"."audit" USING btree ("at" DESC NULLS LAST,"id" DESC NULLS LAST);
--> statement-breakpoint
CREATE TABLE "mediadock"."sessions" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
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
CREATE VIEW "mediadock"."feed" AS (
  select position, case when status <> 4 then request_id end as request_id,
    case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' when 4 then 'REFUSED' end as status, media_complete, changed_at,
    case when status = 4 then request_id end as idempotency_key,
    case when status = 4 then (select g.answer -> 'error' ->> 'code' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_code,
    case when status = 4 then (select g.answer -> 'error' ->> 'message' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_message,
    case when status = 4 then (select g.metadata from mediadock.generations g where g.idempotency_key = e.request_id) end as metadata
  from mediadock.feed_entries e);
--> statement-breakpoint
CREATE VIEW "mediadock"."results" AS (
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key
  from mediadock.requests);
--> statement-breakpoint
-- Ends a statement with an error that carries its result: everything it wrote is rolled back, and the caller knows what
-- it would have done.
CREATE FUNCTION "mediadock"."rolled_back"(result jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'MD001', MESSAGE = 'dry run', DETAIL = result::text;
END $$;
--> statement-breakpoint
-- Makes the table of a day beside the log and attaches it, while others write to the log and read it. It locks the
-- catch-all, and moves the day's rows out of it. Where those are too many for one short statement, the day stays in the
-- catch-all. Returns 'made', 'known', 'in_catch_all', or 'busy' for a lock in the way: the caller tries again later.
-- Both functions run as the owner of the schema, so that a role that may only write rows can make and drop days. Two
-- callers never hold the lock of the catch-all together, and no other role may take it.
CREATE FUNCTION "mediadock"."make_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
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
-- Drops the table of a day with all its rows. Returns 'dropped', 'unknown', or 'busy'.
CREATE FUNCTION "mediadock"."drop_arrival_day"(day date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
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
-- A service's own INSERT may come after the webhook that made the row, and ON CONFLICT DO NOTHING would then forget its
-- values. This fills in the missing ones, and its key replaces one that only a webhook named; the provider is then asked
-- at once. Rows that the receiver writes itself join by their own statement.
CREATE FUNCTION "mediadock"."join_tracked"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  known mediadock.requests;
  rekeyed boolean;
BEGIN
  SELECT * INTO known FROM mediadock.requests WHERE request_id = NEW.request_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NEW;
  END IF;
  rekeyed := NEW.key_name IS NOT NULL AND known.confirmed_at IS NULL AND (known.key_name IS NULL OR known.key_source = 'landed');
  UPDATE mediadock.requests SET
    model = coalesce(known.model, NEW.model),
    metadata = coalesce(known.metadata, NEW.metadata),
    key_name = CASE WHEN rekeyed THEN NEW.key_name ELSE known.key_name END,
    key_source = CASE WHEN rekeyed THEN NULL ELSE known.key_source END,
    next_poll_at = CASE WHEN rekeyed AND known.landed_at IS NOT NULL AND known.key_name IS DISTINCT FROM NEW.key_name THEN now() ELSE known.next_poll_at END
  WHERE request_id = NEW.request_id;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER "requests_join_tracked" BEFORE INSERT ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NULL AND NEW.key_source IS NULL) EXECUTE FUNCTION "mediadock"."join_tracked"();
--> statement-breakpoint
-- Fires after the whole statement, so it sees the media that landing writes beside the row.
CREATE FUNCTION "mediadock"."require_media"() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM mediadock.media WHERE request_id = NEW.request_id LIMIT 1;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = 'mediadock', TABLE = 'requests', CONSTRAINT = 'requests_media',
      MESSAGE = format('request %s cannot be COMPLETED without a row of mediadock.media', NEW.request_id);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "requests_media_inserted" AFTER INSERT ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.status = 'COMPLETED') EXECUTE FUNCTION "mediadock"."require_media"();
--> statement-breakpoint
CREATE TRIGGER "requests_media_updated" AFTER UPDATE OF status ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.status = 'COMPLETED' AND OLD.status <> 'COMPLETED') EXECUTE FUNCTION "mediadock"."require_media"();
--> statement-breakpoint
-- Gives positions to committed changes, one caller at a time, so that positions become visible in order: the row of
-- feed_bounds is locked until the commit, and only roles that may write it can lock it. Each statement in here has a
-- snapshot of its own, newer than the lock. `since` is what an earlier call on this very server has seen to its end;
-- without it all of `changes` is read. Positions are microseconds, so that they also grow from one history of a database
-- to another (a standby that was behind, a dump that was restored). A round that finds nothing takes no lock and writes
-- nothing.
CREATE FUNCTION "mediadock"."sequence_changes"(since pg_snapshot, most integer, OUT sequenced integer, OUT head bigint, OUT seen pg_snapshot)
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
-- Returns the position if the feed still keeps all later changes, and raises MD002 otherwise. 0 is the beginning of the feed.
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
END $$;
--> statement-breakpoint
-- A landed result that a service's own values join (metadata, model, the key, the Idempotency-Key) is a change to its
-- readers.
CREATE FUNCTION "mediadock"."note_joined"() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO mediadock.changes (changed_at, request_ids, statuses, media_complete)
  VALUES (clock_timestamp(), array[NEW.request_id], array[CASE NEW.status WHEN 'COMPLETED' THEN 1 WHEN 'FAILED' THEN 2 ELSE 3 END::smallint], array[NEW.media_complete]);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER "requests_note_joined" AFTER UPDATE OF metadata ON "mediadock"."requests"
FOR EACH ROW WHEN (NEW.landed_at IS NOT NULL AND (NEW.metadata, NEW.model, NEW.key_name, NEW.sandbox, NEW.idempotency_key) IS DISTINCT FROM (OLD.metadata, OLD.model, OLD.key_name, OLD.sandbox, OLD.idempotency_key))
EXECUTE FUNCTION "mediadock"."note_joined"();
--> statement-breakpoint
-- Counts the rows that a statement wrote to the log. In the order of the key, so that two statements never wait for each other.
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
-- Returns the metadata, or an object with an error where it cannot be written out. Sizes come before texts: a number that
-- no double holds, like 1e100000, takes a few bytes here and 100,001 as text.
CREATE FUNCTION "mediadock"."readable_metadata"(metadata jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_column_size(metadata) <= 8388608 AND NOT jsonb_path_exists(metadata, '$.**{200}')
    AND NOT jsonb_path_exists(metadata, '$.**{0 to 200} ? (@.type() == "number" && (@ > 1e308 || @ < -1e308 || (@ > -1e-308 && @ < 1e-308 && @ != 0)))')
    AND octet_length(metadata::text) <= 1048576 THEN RETURN metadata; END IF;
  RETURN '{"error": {"code": "unreadable", "message": "this metadata was nested deeper than 200, longer than 1048576 bytes, or held a number that no double holds"}}';
END $$;
--> statement-breakpoint
REVOKE EXECUTE ON FUNCTION "mediadock"."make_arrival_day"(date), "mediadock"."drop_arrival_day"(date) FROM PUBLIC;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."join_tracked"() FROM PUBLIC;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."sequence_changes"(pg_snapshot, integer) FROM PUBLIC;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."still_kept"(bigint) FROM PUBLIC;
--> statement-breakpoint
REVOKE ALL ON FUNCTION "mediadock"."note_joined"() FROM PUBLIC;
