-- When the provider refused a submit; null on older rows, so no row is rewritten.
ALTER TABLE "mediadock"."generations" ADD COLUMN "refused_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "generations_refused" ON "mediadock"."generations" USING btree ("refused_at") WHERE state = 'refused';--> statement-breakpoint
CREATE INDEX "attempts_parked" ON "mediadock"."attempts" USING btree ("attempted_at") WHERE outcome = 'parked';