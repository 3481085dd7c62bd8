-- Roles with the least rights for mediadock in a database that it does not share (PostgreSQL 15 or newer).
--
-- Apply it as a superuser, straight to Postgres, once before the first `mediadock migrate`,
-- once after it, and once after the migration of each new version. Applying it again changes nothing. Step by step: docs/postgres.md, "Roles".
--
--   psql --set ON_ERROR_STOP=1 --dbname media --file roles.sql
--
-- Then give each role that signs in a password: \password mediadock_migrate
--
--   mediadock_migrate            owns the schema: `mediadock migrate receiver`
--   mediadock_run                reads and writes rows: `mediadock start receiver`, the command line
--   mediadock_read               reads results, media and the feed, and stores its position in the feed: your services
--   mediadock_provider_migrate   owns the provider's schema, if you run the provider: `mediadock migrate provider`
--   mediadock_provider_run       reads and writes the provider's rows: `mediadock start provider`
--
-- A database that was migrated by another role first needs, as a superuser:
--
--   reassign owned by <that role> to mediadock_migrate;
--
-- Start receivers with MIGRATE_ON_START=false. With `true`, a start succeeds only while no migration is pending.

do $$
declare
  name text;
begin
  foreach name in array array['mediadock_migrate', 'mediadock_run', 'mediadock_read', 'mediadock_provider_migrate', 'mediadock_provider_run'] loop
    if not exists (select from pg_roles where rolname = name) then
      execute format('create role %I login', name);
    end if;
  end loop;
end $$;

create schema if not exists mediadock authorization mediadock_migrate;
create schema if not exists provider authorization mediadock_provider_migrate;

-- Databases that began before PostgreSQL 15 let every role create in `public`. Such a role can write a
-- function that runs with the rights of another role whose search_path includes `public`.
revoke create on schema public from public;
do $$
begin
  if has_schema_privilege('public', 'public', 'create') then
    raise exception 'every role may still create objects in the schema public' using hint = 'Apply this file as a superuser, or as the owner of that schema.';
  end if;
end $$;
-- Postgres lets every role create temporary tables and large objects of any size, and write messages of any size to its
-- write-ahead log. They can fill the disk, and a full disk stops the server. mediadock writes such messages only when it
-- stores deliveries.
do $$
declare
  routine regprocedure;
begin
  execute format('revoke temporary on database %I from public', current_database());
  for routine in
    select oid from pg_proc where pronamespace = 'pg_catalog'::regnamespace
      and proname in ('lo_creat', 'lo_create', 'lo_from_bytea', 'pg_logical_emit_message')
  loop
    execute format('revoke execute on function %s from public', routine);
    if routine::text like '%pg_logical_emit_message(%' then
      execute format('grant execute on function %s to mediadock_migrate, mediadock_run', routine);
    end if;
  end loop;
end $$;

alter role mediadock_migrate set search_path = pg_catalog, mediadock, pg_temp;
alter role mediadock_run set search_path = pg_catalog, mediadock, pg_temp;
alter role mediadock_read set search_path = pg_catalog, mediadock, pg_temp;
alter role mediadock_provider_migrate set search_path = pg_catalog, provider, pg_temp;
alter role mediadock_provider_run set search_path = pg_catalog, provider, pg_temp;

-- Deadlines in the server. The programs ask for shorter ones when they connect; a pooler may not pass those on.
alter role mediadock_run set statement_timeout = '60s';
alter role mediadock_run set idle_in_transaction_session_timeout = '60s';
alter role mediadock_provider_run set statement_timeout = '60s';
alter role mediadock_provider_run set idle_in_transaction_session_timeout = '60s';
-- An open transaction of a reader keeps its locks, and keeps vacuum from removing deleted rows.
alter role mediadock_read set statement_timeout = '60s';
alter role mediadock_read set idle_in_transaction_session_timeout = '60s';
-- No JIT: compiling a statement takes far longer than running it.
alter role mediadock_run set jit = off;
alter role mediadock_provider_run set jit = off;

-- The receiver: the rows of its tables, and its functions, two of which make and drop days of the arrival log.
grant usage on schema mediadock to mediadock_run, mediadock_read;
grant select, insert, update, delete on all tables in schema mediadock to mediadock_run;
grant usage, select on all sequences in schema mediadock to mediadock_run;
grant execute on all functions in schema mediadock to mediadock_run;

-- The same for objects of later versions.
alter default privileges for role mediadock_migrate in schema mediadock grant select, insert, update, delete on tables to mediadock_run;
alter default privileges for role mediadock_migrate in schema mediadock grant usage, select on sequences to mediadock_run;
alter default privileges for role mediadock_migrate in schema mediadock grant execute on functions to mediadock_run;

-- The provider: the rows of its tables, and its functions.
grant usage on schema provider to mediadock_provider_run;
grant select, insert, update, delete on all tables in schema provider to mediadock_provider_run;
grant usage, select on all sequences in schema provider to mediadock_provider_run;
grant execute on all functions in schema provider to mediadock_provider_run;
alter default privileges for role mediadock_provider_migrate in schema provider grant select, insert, update, delete on tables to mediadock_provider_run;
alter default privileges for role mediadock_provider_migrate in schema provider grant usage, select on sequences to mediadock_provider_run;
alter default privileges for role mediadock_provider_migrate in schema provider grant execute on functions to mediadock_provider_run;

-- Objects that exist only after the first migration: the views and tables for services, and the histories of migrations.
do $$
declare
  name text;
begin
  foreach name in array array['mediadock.results', 'mediadock.media', 'mediadock.feed'] loop
    if to_regclass(name) is not null then
      execute format('grant select on %s to mediadock_read', name);
    end if;
  end loop;
  if to_regclass('mediadock.feed_consumers') is not null then
    grant select, insert, update, delete on mediadock.feed_consumers to mediadock_read;
    grant execute on function mediadock.still_kept(bigint) to mediadock_read;
  end if;
  if to_regclass('mediadock.migrations') is not null then
    revoke insert, update, delete on mediadock.migrations from mediadock_run;
  end if;
  if to_regclass('provider.migrations') is not null then
    revoke insert, update, delete on provider.migrations from mediadock_provider_run;
  end if;
end $$;
