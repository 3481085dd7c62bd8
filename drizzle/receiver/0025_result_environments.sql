-- Until 0024, a webhook that gave a request its first environment stored it in `sandbox`. It is that of the result. In a
-- migration of its own, since these rows stay locked until its end.
UPDATE "mediadock"."requests" SET "signed_sandbox" = "sandbox", "sandbox" = NULL
WHERE "landed_at" IS NOT NULL AND "confirmed_at" IS NULL AND "signed_sandbox" IS NULL AND "sandbox" IS NOT NULL;
