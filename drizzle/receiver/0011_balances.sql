ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "credits_refused_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "account_asked_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "balance" numeric;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "balance_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "spent_last_hour" numeric;--> statement-breakpoint
ALTER TABLE "mediadock"."call_budgets" ADD COLUMN "cost_difference" numeric;