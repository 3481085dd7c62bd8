-- Accounts, keys, calls.
CREATE TABLE "provider"."accounts" (
	"id" text PRIMARY KEY NOT NULL,
	"available" numeric DEFAULT '0' NOT NULL,
	"last_turn" bigint DEFAULT 0 NOT NULL,
	"last_sandbox_turn" bigint DEFAULT 0 NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "accounts_available_not_negative" CHECK (available >= 0)
);
--> statement-breakpoint
CREATE INDEX "accounts_last_turn" ON "provider"."accounts" USING btree ("last_turn" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "accounts_last_sandbox_turn" ON "provider"."accounts" USING btree ("last_sandbox_turn" DESC NULLS LAST);
--> statement-breakpoint
CREATE TABLE "provider"."api_keys" (
	"id" uuid PRIMARY KEY NOT NULL,
	"account_id" text NOT NULL,
	"name" text NOT NULL,
	"environment" text NOT NULL,
	"scopes" text[] NOT NULL,
	"key_hash" "bytea" NOT NULL,
	"key_hint" text NOT NULL,
	"signing_secret" "bytea" NOT NULL,
	"faults" jsonb,
	"created_at" timestamp with time zone NOT NULL,
	"revoked_at" timestamp with time zone
);
--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_hash" ON "provider"."api_keys" USING btree ("key_hash");
--> statement-breakpoint
CREATE INDEX "api_keys_account" ON "provider"."api_keys" USING btree ("account_id","created_at");
--> statement-breakpoint
CREATE UNLOGGED TABLE "provider"."rate_windows" (
	"id" text PRIMARY KEY NOT NULL,
	"at_ms" bigint[] NOT NULL,
	"calls" integer[] NOT NULL,
	"used" integer NOT NULL,
	"granted" integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE "provider"."idempotency_keys" (
	"account_id" text NOT NULL,
	"environment" text NOT NULL,
	"key" uuid NOT NULL,
	"fingerprint" "bytea" NOT NULL,
	"request_id" uuid NOT NULL,
	"submitted_position" integer,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "idempotency_keys_account_id_environment_key_pk" PRIMARY KEY("account_id","environment","key")
);
--> statement-breakpoint
CREATE INDEX "idempotency_keys_created" ON "provider"."idempotency_keys" USING btree ("created_at");
--> statement-breakpoint
CREATE TABLE "provider"."ledger_entries" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "provider"."ledger_entries_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" text NOT NULL,
	"request_id" uuid,
	"book" text NOT NULL,
	"kind" text NOT NULL,
	"amount" numeric NOT NULL,
	"reference" text,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "ledger_entries_account" ON "provider"."ledger_entries" USING btree ("account_id","id" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "ledger_entries_settled" ON "provider"."ledger_entries" USING btree ("account_id","created_at") WHERE book = 'settled';
--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_reserve" ON "provider"."ledger_entries" USING btree ("request_id") WHERE book = 'reserved' and kind = 'reserve';
--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_end" ON "provider"."ledger_entries" USING btree ("request_id") WHERE book = 'reserved' and kind <> 'reserve';
--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_reference" ON "provider"."ledger_entries" USING btree ("reference","book") WHERE reference is not null;
--> statement-breakpoint
-- Requests and models.
CREATE TABLE "provider"."requests" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seq" bigint GENERATED ALWAYS AS IDENTITY (sequence name "provider"."requests_seq_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" text NOT NULL,
	"api_key_id" uuid NOT NULL,
	"environment" text NOT NULL,
	"model" text NOT NULL,
	"input" jsonb NOT NULL,
	"engine" jsonb,
	"remote_job" jsonb,
	"cost" numeric NOT NULL,
	"status" text NOT NULL,
	"turn" bigint,
	"progress" integer DEFAULT 0 NOT NULL,
	"logs" text[] DEFAULT '{}' NOT NULL,
	"output" jsonb,
	"error_code" text,
	"error_message" text,
	"webhook_url" text,
	"faults" jsonb,
	"attempts" integer DEFAULT 0 NOT NULL,
	"lease_token" uuid,
	"lease_until" timestamp with time zone,
	"created_at" timestamp with time zone NOT NULL,
	"started_at" timestamp with time zone,
	"completed_at" timestamp with time zone
);
--> statement-breakpoint
CREATE INDEX "requests_queue" ON "provider"."requests" USING btree ("environment","turn","seq") WHERE status = 'IN_QUEUE';
--> statement-breakpoint
CREATE INDEX "requests_running" ON "provider"."requests" USING btree ("environment","lease_until") WHERE status = 'IN_PROGRESS';
--> statement-breakpoint
CREATE INDEX "requests_account" ON "provider"."requests" USING btree ("account_id","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);
--> statement-breakpoint
CREATE INDEX "requests_live" ON "provider"."requests" USING btree ("account_id","created_at") WHERE environment = 'live';
--> statement-breakpoint
CREATE TABLE "provider"."model_activations" (
	"environment" text NOT NULL,
	"slug" text NOT NULL,
	"enabled" boolean NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "model_activations_environment_slug_pk" PRIMARY KEY("environment","slug")
);
--> statement-breakpoint
-- Webhooks.
CREATE TABLE "provider"."deliveries" (
	"id" uuid PRIMARY KEY NOT NULL,
	"request_id" uuid,
	"account_id" text NOT NULL,
	"api_key_id" uuid NOT NULL,
	"url" text NOT NULL,
	"host" text NOT NULL,
	"body" text NOT NULL,
	"state" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"max_attempts" integer DEFAULT 6 NOT NULL,
	"due_at" timestamp with time zone NOT NULL,
	"lease_token" uuid,
	"faults" jsonb,
	"created_at" timestamp with time zone NOT NULL,
	"settled_at" timestamp with time zone
);
--> statement-breakpoint
CREATE INDEX "deliveries_due" ON "provider"."deliveries" USING btree ("account_id","host","due_at") WHERE state = 'pending';
--> statement-breakpoint
CREATE INDEX "deliveries_last_attempt" ON "provider"."deliveries" USING btree ("due_at") WHERE state = 'pending' and attempts >= max_attempts;
--> statement-breakpoint
CREATE INDEX "deliveries_request" ON "provider"."deliveries" USING btree ("request_id");
--> statement-breakpoint
CREATE INDEX "deliveries_account" ON "provider"."deliveries" USING btree ("account_id","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);
--> statement-breakpoint
CREATE TABLE "provider"."delivery_attempts" (
	"delivery_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"duration_ms" integer NOT NULL,
	"ok" boolean NOT NULL,
	"http_status" integer,
	"detail" text NOT NULL,
	CONSTRAINT "delivery_attempts_delivery_id_number_pk" PRIMARY KEY("delivery_id","number")
);
--> statement-breakpoint
-- The console.
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
--> statement-breakpoint
CREATE TABLE "provider"."sessions" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "provider"."api_keys" ADD CONSTRAINT "api_keys_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "provider"."accounts"("id") ON DELETE no action ON UPDATE no action;
