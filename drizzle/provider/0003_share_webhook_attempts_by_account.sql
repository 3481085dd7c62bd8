DROP INDEX "provider"."deliveries_due";--> statement-breakpoint
CREATE INDEX "deliveries_last_attempt" ON "provider"."deliveries" USING btree ("due_at") WHERE state = 'pending' and attempts >= max_attempts;--> statement-breakpoint
CREATE INDEX "deliveries_due" ON "provider"."deliveries" USING btree ("account_id","host","due_at") WHERE state = 'pending';