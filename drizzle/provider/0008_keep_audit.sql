CREATE TABLE "provider"."audit" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp with time zone NOT NULL,
	"via" text NOT NULL,
	"actor" text NOT NULL,
	"action" text NOT NULL,
	"target" text,
	"detail" jsonb
);
--> statement-breakpoint
CREATE INDEX "audit_target" ON "provider"."audit" USING btree ("target","id" DESC NULLS LAST);