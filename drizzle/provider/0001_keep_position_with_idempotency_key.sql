ALTER TABLE "provider"."idempotency_keys" ADD COLUMN "submitted_position" integer;--> statement-breakpoint
ALTER TABLE "provider"."requests" DROP COLUMN "submitted_position";