-- Descriptions for \d+ in psql. docs/results.md and docs/feed.md print the same sentences.
COMMENT ON VIEW "mediadock"."results" IS 'One row per known request. Stable: it only gains columns.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."request_id" IS 'The provider''s id of the request.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."status" IS
  'IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED or CANCELED. A COMPLETED row always has media.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."model" IS 'The model, as submitted or tracked.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."output" IS
  'The output in the shape of the provider''s REST API, with all images. Null until something is known.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."media_complete" IS
  'False while only the content of the webhook is known. True at once for FAILED and CANCELED.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."cost" IS 'Credits charged, by the provider.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."error_code" IS 'The provider''s error code of a FAILED request.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."error_message" IS 'The provider''s error message of a FAILED request.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."created_at" IS
  'When the provider created the request. Before its answer: when it was tracked.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."completed_at" IS 'When the request ended, by the provider''s clock.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."landed_at" IS 'When the row became terminal here. Null until then.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."source" IS
  'Which source made the row terminal: webhook or reconciler (polling).';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."key_name" IS 'The configured key that the request belongs to.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."sandbox" IS 'True for a request of a sandbox key. Null while unknown.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."metadata" IS 'The submitter''s own data.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."idempotency_key" IS 'The Idempotency-Key of a submit through mediadock.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."progress" IS
  '0 to 100, as the last poll saw it. Null before the first poll, 100 when completed.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."results"."queue_position" IS 'Place in the provider''s queue, as the last poll saw it.';
--> statement-breakpoint
COMMENT ON TABLE "mediadock"."media" IS
  'One row per picture, video or sound of a result. Stable: it only gains columns.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."request_id" IS 'The request of results.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."kind" IS 'image, video or audio.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."position" IS 'Place within its kind, from 0.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."url" IS 'The provider''s link, which may expire.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."original_url" IS
  'The provider''s link to the unprocessed original, if there is one.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."width" IS 'Width in pixels.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."height" IS 'Height in pixels.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."duration_seconds" IS 'Length of a video or sound in seconds.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."archived_url" IS 'Where the archived copy is: file://… or s3://….';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."bytes" IS 'Size of the copy in bytes.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."content_type" IS 'Media type of the copy, by its content.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."sha256" IS 'SHA-256 of the copy in hex. A file never changes under it.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."archived_at" IS 'When the copy was made.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."media"."archive_error" IS
  'Why there is no copy: gone: …, refused: …, unreachable: …; removed by an operator; expired after MEDIA_ARCHIVE_RETENTION_DAYS.';
--> statement-breakpoint
COMMENT ON VIEW "mediadock"."feed" IS
  'Every change of a result, once and in order. Read on after the last position processed. Stable: it only gains columns.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."position" IS 'Place in the feed. Positions only grow and have gaps.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."request_id" IS 'The request of results. Null for REFUSED.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."status" IS
  'What the result became; REFUSED for a submit that was refused or expired after its 202.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."media_complete" IS 'Whether all of the result was known by this change.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."changed_at" IS 'When the change was written.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."idempotency_key" IS 'Of a REFUSED submit: its Idempotency-Key. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."error_code" IS 'Of a REFUSED submit: the error code. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."error_message" IS 'Of a REFUSED submit: the error message. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."metadata" IS 'Of a REFUSED submit: the submitter''s own data. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."model" IS 'Of a REFUSED submit: the model. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."key_name" IS 'Of a REFUSED submit: the key. Null otherwise.';
--> statement-breakpoint
COMMENT ON COLUMN "mediadock"."feed"."sandbox" IS
  'Of a REFUSED submit: whether its key is a sandbox key. Null otherwise.';
