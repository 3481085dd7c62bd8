CREATE TABLE "mediadock"."archive_progress" (
	"single" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"position" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "archive_progress_single" CHECK (single)
);
--> statement-breakpoint
CREATE TABLE "mediadock"."archived_files" (
	"sha256" text PRIMARY KEY NOT NULL,
	"bytes" bigint NOT NULL,
	"content_type" text NOT NULL,
	"has_thumbnail" boolean DEFAULT false NOT NULL,
	"stored_at" timestamp with time zone,
	"look_at" timestamp with time zone,
	"removing_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "mediadock"."media_copies" (
	"request_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"position" integer NOT NULL,
	"url" text NOT NULL,
	"state" text NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL,
	"tries" smallint DEFAULT 0 NOT NULL,
	"fault" text,
	"trouble" text,
	"sha256" text,
	"ended_at" timestamp with time zone,
	CONSTRAINT "media_copies_request_id_kind_position_pk" PRIMARY KEY("request_id","kind","position")
);
--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "archived_url" text;--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "bytes" bigint;--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "content_type" text;--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "sha256" text;--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "archived_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."media" ADD COLUMN "archive_error" text;--> statement-breakpoint
CREATE INDEX "archived_files_look" ON "mediadock"."archived_files" USING btree ("look_at") WHERE look_at is not null;--> statement-breakpoint
CREATE INDEX "media_copies_due" ON "mediadock"."media_copies" USING btree ("due_at") WHERE state = 'waiting';--> statement-breakpoint
CREATE INDEX "media_copies_file" ON "mediadock"."media_copies" USING btree ("sha256") WHERE sha256 is not null;--> statement-breakpoint
CREATE INDEX "media_copies_failed" ON "mediadock"."media_copies" USING btree ("ended_at") WHERE state = 'failed';--> statement-breakpoint
INSERT INTO "mediadock"."archive_progress" DEFAULT VALUES;
--> statement-breakpoint
-- A queue: rows are claimed and settled, and what waits is found by a narrow index.
ALTER TABLE "mediadock"."media_copies" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
