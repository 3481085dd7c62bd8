CREATE TABLE "mediadock"."generations" (
	"idempotency_key" uuid PRIMARY KEY NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"model" text NOT NULL,
	"input" jsonb NOT NULL,
	"key_name" text NOT NULL,
	"metadata" jsonb,
	"created_at" timestamp with time zone NOT NULL,
	"request_id" uuid,
	"cost" numeric,
	"next_attempt_at" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"answer_status" smallint,
	"answer" jsonb,
	"last_error" text
);
--> statement-breakpoint
CREATE INDEX "generations_due" ON "mediadock"."generations" USING btree ("next_attempt_at") WHERE state = 'pending';--> statement-breakpoint
CREATE INDEX "generations_request" ON "mediadock"."generations" USING btree ("request_id");