ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "account_id" text;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "account_limit" integer;