CREATE TABLE "mediadock"."sessions" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
