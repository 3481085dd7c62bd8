-- Validating reads the table without blocking writers. SET NOT NULL then reads nothing, since the constraint is valid.
ALTER TABLE "mediadock"."deliveries" VALIDATE CONSTRAINT "deliveries_environment_not_null";--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" ALTER COLUMN "environment" SET NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."deliveries" DROP CONSTRAINT "deliveries_environment_not_null";
