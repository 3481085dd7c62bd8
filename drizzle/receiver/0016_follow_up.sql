ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "missed_slots" integer[] DEFAULT array_fill(0, array[61]) NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "refusals" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "failing_since" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "recovered_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."requests" ADD COLUMN "items_wanted" smallint;--> statement-breakpoint
CREATE INDEX "requests_turns" ON "mediadock"."requests" USING btree (coalesce(key_name, ''),coalesce(status = 'COMPLETED' and (items_wanted = 1 or (output -> 'images') is null), false),"next_poll_at") WHERE next_poll_at is not null;--> statement-breakpoint
CREATE INDEX "requests_held_up" ON "mediadock"."requests" USING btree (coalesce(key_name, ''),"polled_at") WHERE next_poll_at is not null and poll_outcome in ('unreachable', 'postponed');