CREATE TABLE "mediadock"."replays" (
	"id" uuid PRIMARY KEY NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"actor" text NOT NULL,
	"filters" jsonb NOT NULL,
	"count" integer NOT NULL,
	"requeued" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
ALTER TABLE "mediadock"."attempts" ADD COLUMN "replay_id" uuid;--> statement-breakpoint
ALTER TABLE "mediadock"."inbox" ADD COLUMN "replay_id" uuid;--> statement-breakpoint
CREATE INDEX "attempts_replay" ON "mediadock"."attempts" USING btree ("replay_id","outcome") WHERE replay_id is not null;--> statement-breakpoint
CREATE INDEX "inbox_replay" ON "mediadock"."inbox" USING btree ("replay_id") WHERE replay_id is not null;
