DROP INDEX "mediadock"."inbox_due";--> statement-breakpoint
DROP INDEX "mediadock"."inbox_turns";--> statement-breakpoint
ALTER TABLE "mediadock"."subscriptions" ADD COLUMN "only_complete" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "inbox_due_at" ON "mediadock"."inbox" USING btree ("due_at");--> statement-breakpoint
ALTER TABLE "mediadock"."inbox" DROP COLUMN "lane";--> statement-breakpoint
ALTER TABLE "mediadock"."inbox" DROP COLUMN "key_name";
