COMMENT ON COLUMN "mediadock"."results"."output" IS
  'The output in the shape of the provider''s REST API. Until media_complete: what the webhook carried. Null before the end, and for FAILED and CANCELED.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."progress" IS
  '0 to 100: the highest that a poll has seen. Null until a poll finds the request running, 100 when completed. Stays 0 for sources that state none.';
