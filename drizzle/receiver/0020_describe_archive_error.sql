-- A description for \d+ in psql. docs/results.md prints the same sentence.
COMMENT ON COLUMN "mediadock"."media"."archive_error" IS
  'Why there is no copy: gone: …, refused: …, unreachable: …, removed (by an operator), or expired (after MEDIA_ARCHIVE_RETENTION_DAYS).';
