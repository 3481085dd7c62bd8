ALTER TABLE "mediadock"."deliveries" ADD COLUMN "environment" text;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "doubt_poll_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "requests_doubted" ON "mediadock"."requests" USING btree ("doubt_poll_at") WHERE doubt_poll_at is not null;--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" ADD CONSTRAINT "deliveries_environment" CHECK (environment in ('live', 'sandbox', 'unknown')) NOT VALID;