DROP TABLE "provider"."rate_windows";--> statement-breakpoint
CREATE UNLOGGED TABLE "provider"."rate_windows" (
	"id" text PRIMARY KEY NOT NULL,
	"at_ms" bigint[] NOT NULL,
	"calls" integer[] NOT NULL,
	"used" integer NOT NULL,
	"granted" integer NOT NULL
);
