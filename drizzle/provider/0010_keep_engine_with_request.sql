ALTER TABLE "provider"."requests" ADD COLUMN "engine" jsonb;--> statement-breakpoint
ALTER TABLE "provider"."requests" ADD COLUMN "remote_job" jsonb;