ALTER TABLE "mediadock"."generations" ADD COLUMN "webhook_url" text;--> statement-breakpoint
ALTER TABLE "mediadock"."generations" ADD COLUMN "in_doubt_from" integer;