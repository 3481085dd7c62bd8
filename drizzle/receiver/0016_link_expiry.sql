-- When the link of a copy ends; null without a promise, so no row is rewritten.
ALTER TABLE "mediadock"."media_copies" ADD COLUMN "expires_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "media_copies_expiring" ON "mediadock"."media_copies" USING btree ("expires_at","due_at") WHERE state = 'waiting' and expires_at is not null;