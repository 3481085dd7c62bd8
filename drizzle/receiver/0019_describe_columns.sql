-- Descriptions for \d+ in psql. docs/results.md and docs/feed.md print the same sentences.
COMMENT ON COLUMN "mediadock"."results"."model" IS
  'The model that the provider named, else the submitted or tracked one.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."media_complete" IS
  'False until the whole result is known. True at once for FAILED and CANCELED.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."cost" IS
  'What the provider charged: credits, or US dollars for OpenRouter.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."created_at" IS
  'When the provider created the request. If that is unknown: when it was tracked.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."completed_at" IS
  'When the request ended, by the provider''s clock. Null if that is unknown.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."source" IS
  'What reported the terminal state: webhook, or reconciler (a poll). Null until then.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."key_name" IS 'The name of the request''s key. Null if that is unknown.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."sha256" IS 'SHA-256 of the copy in hex. The file under a hash never changes.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."media_complete" IS 'True if the whole result was known by this change.';
