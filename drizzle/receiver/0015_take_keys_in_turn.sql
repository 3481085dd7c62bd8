ALTER TABLE "mediadock"."inbox" ADD COLUMN "key_name" text DEFAULT '' NOT NULL;--> statement-breakpoint
-- What a receiver of the version before queues has no key named, and shares one turn.
UPDATE "mediadock"."inbox" SET "key_name" = d."key_name" FROM "mediadock"."deliveries" d WHERE d."id" = "inbox"."delivery_id" AND "lane" = 'fetch';--> statement-breakpoint
CREATE INDEX "inbox_turns" ON "mediadock"."inbox" USING btree ("key_name","due_at") WHERE lane = 'fetch';