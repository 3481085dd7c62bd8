-- Both have a default that does not change with the row: no row is written, and the version before goes on inserting.
ALTER TABLE "mediadock"."issues" ADD COLUMN "samples" integer[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."issues" ADD COLUMN "sample_seconds" integer DEFAULT 10 NOT NULL;
