CREATE TABLE "mediadock"."known_senders" (
	"key_name" text NOT NULL,
	"source" text NOT NULL,
	"last_at" timestamp with time zone NOT NULL,
	CONSTRAINT "known_senders_key_name_source_pk" PRIMARY KEY("key_name","source")
);
