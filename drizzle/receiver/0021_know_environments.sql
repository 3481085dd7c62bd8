-- The environment of a key that is not known is stored as 'unknown', so every delivery has one.
ALTER TABLE "mediadock"."deliveries" ALTER COLUMN "environment" SET DEFAULT 'unknown';--> statement-breakpoint
UPDATE "mediadock"."deliveries" SET "environment" = 'unknown' WHERE "environment" IS NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" ADD CONSTRAINT "deliveries_environment_not_null" CHECK (environment IS NOT NULL) NOT VALID;
