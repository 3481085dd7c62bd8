ALTER TABLE "mediadock"."quarantine" ADD COLUMN "bytes" integer GENERATED ALWAYS AS (octet_length(body) + octet_length(headers::text)) STORED;--> statement-breakpoint
ALTER TABLE "mediadock"."quarantine" ADD COLUMN "source" text;--> statement-breakpoint
-- What strangers send is not worth the time of compressing it: for a megabyte longer than all else.
ALTER TABLE "mediadock"."quarantine" ALTER COLUMN "body" SET STORAGE EXTERNAL;
