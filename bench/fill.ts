import postgres from 'postgres'
import type { BenchServer } from './servers.ts'
import { say } from './tables.ts'

/*
 * Many deliveries without the hours of sending them: what a receiver really
 * received and landed is copied, row by row in each table, under new ids and at
 * earlier times, so that every row has the shape that the receiver gives it.
 */

const batchRows = 100_000
const sampleRows = 2000
const days = 29

type Filling = { server: BenchServer; databaseUrl: string }

/** Lets nothing be analyzed from now on but the inbox: what is filled then has the statistics that it has now. */
export async function freezeStatistics(sql: postgres.Sql): Promise<void> {
  const tables = await sql<{ name: string }[]>`
    select relname as name from pg_class where relnamespace = 'mediadock'::regnamespace and relkind = 'r' and relname <> 'inbox'`
  for (const { name } of tables) await sql`alter table mediadock.${sql(name)} set (autovacuum_enabled = false)`
}

/** Adds processed deliveries over the last month, the oldest first, to a database that has received some. */
export async function addDeliveries(filling: Filling, from: number, to: number): Promise<void> {
  await withoutWaiting(filling.server, async () => {
    await filled(filling, async (sql) => {
      for (let day = 0; day <= days + 1; day += 1)
        await sql`select mediadock.make_arrival_day((now() at time zone 'UTC')::date - ${day}::int)`
      await freezeStatistics(sql)
      for (let done = from; done < to; done += batchRows) {
        const rows = Math.min(batchRows, to - done)
        await chooseCopies(sql, rows, days * (1 - done / to))
        await copy(sql, 'requests', 't.request_id = c.request_id')
        await copy(sql, 'deliveries', 't.id = c.id')
        await copy(sql, 'media', 't.request_id = c.request_id')
        await copy(sql, 'attempts', 't.delivery_id = c.id')
        await copy(sql, 'arrivals', 't.delivery_id = c.id')
        if ((done / batchRows) % 10 === 9 || done + rows === to) say(`${done + rows} of ${to} deliveries`)
      }
      for (const table of ['requests', 'deliveries', 'arrivals']) await expectRows(sql, table, to)
    })
  })
}

/** Puts so many deliveries into the inbox as if they had just been acknowledged. */
export async function addBacklog(filling: Filling, deliveries: number): Promise<void> {
  await filled(filling, async (sql) => {
    for (let done = 0; done < deliveries; done += batchRows) {
      await chooseCopies(sql, Math.min(batchRows, deliveries - done), 0)
      await copy(sql, 'deliveries', 't.id = c.id')
      await sql`
        insert into mediadock.inbox (delivery_id, due_at)
        select new_id, t.received_at from copied c join mediadock.deliveries t on t.id = c.new_id order by t.received_at`
    }
  })
  const sql = postgres(filling.databaseUrl, { max: 1, onnotice: () => {} })
  // Remaining writes must not disturb the next measurement.
  await sql`checkpoint`
  await sql.end()
}

/** On one connection, which has the sample and what it becomes in this batch; triggers and foreign rules do not run. */
async function filled({ databaseUrl }: Filling, work: (sql: postgres.Sql) => Promise<void>): Promise<void> {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {}, max_lifetime: null })
  try {
    await sql`set session_replication_role = replica`
    await sql`set synchronous_commit = off`
    await sql`
      create temp table sample as select id, webhook_id, request_id, row_number() over () as n from (
        select d.* from mediadock.deliveries d join mediadock.requests r using (request_id) where landed_at is not null order by received_at desc limit ${sampleRows}) as d`
    await sql`create temp table copied (id uuid, request_id uuid, new_id uuid, new_request_id uuid, new_webhook_id text, shift interval)`
    await work(sql)
  } finally {
    await sql.end()
  }
}

/** `copied`: which of the sample are copied in this batch, under which ids, and how much earlier they came. */
async function chooseCopies(sql: postgres.Sql, rows: number, daysAgo: number): Promise<void> {
  await sql`truncate copied`
  await sql`
    insert into copied
    select id, request_id,
      -- As deliveryId() makes them: of the webhook id first.
      (left(encode(sha256(convert_to(new_webhook_id, 'UTF8')), 'hex'), 12) || left(md5(random()::text), 20))::uuid,
      -- The digit by which the provider's stand-in knows what it is stays.
      overlay(replace(gen_random_uuid()::text, '-', '') placing substr(request_id::text, 20, 1) from 17 for 1)::uuid,
      new_webhook_id, ${daysAgo}::float8 * interval '1 day' + random() * interval '1 second'
    from (
      select sample.*, gen_random_uuid()::text as new_webhook_id
      from generate_series(1, ${rows}) as i join sample on sample.n = 1 + i % (select count(*) from sample)) as s`
  await sql`analyze copied`
}

/** The columns that differ in a copy. All others stay the same. */
const changed: Record<string, string> = {
  id: 'c.new_id',
  delivery_id: 'c.new_id',
  request_id: 'c.new_request_id',
  webhook_id: 'c.new_webhook_id',
  body: `convert_to(replace(convert_from(t.body, 'UTF8'), t.request_id::text, c.new_request_id::text), 'UTF8')`,
  headers: `jsonb_set(t.headers, '{x-service-webhook-id}', to_jsonb(c.new_webhook_id))`,
  output: `replace(t.output::text, t.request_id::text, c.new_request_id::text)::jsonb`,
  url: 'replace(t.url, t.request_id::text, c.new_request_id::text)',
  // A month of them has been completed long since.
  next_poll_at: 'null',
  media_complete: 't.landed_at is not null',
  confirmed_at: 't.landed_at - c.shift',
}

async function copy(sql: postgres.Sql, table: string, join: string): Promise<void> {
  const columns = await sql<{ name: string; type: string }[]>`
    select column_name as name, data_type as type from information_schema.columns
    where table_schema = 'mediadock' and table_name = ${table} and is_generated = 'NEVER' and coalesce(column_default, '') not like 'nextval%'`
  const values = columns.map(
    ({ name, type }) => changed[name] ?? (type.startsWith('timestamp') ? `t.${name} - c.shift` : `t.${name}`),
  )
  await sql.unsafe(
    `insert into mediadock.${table} (${columns.map(({ name }) => name).join(', ')})
     select ${values.join(', ')} from copied c join mediadock.${table} t on ${join}`,
  )
}

/** A table that was left out would make the rates of a filled database look better than they are. */
async function expectRows(sql: postgres.Sql, table: string, least: number): Promise<void> {
  const [row] = await sql<{ n: number }[]>`select count(*)::int as n from mediadock.${sql(table)}`
  if (!row || row.n < least) throw new Error(`mediadock.${table} was to be filled with ${least} rows and has ${row?.n}`)
}

/** While it is filled the server neither waits for checkpoints nor writes whole pages twice; afterwards it is as it comes. */
async function withoutWaiting(server: BenchServer, work: () => Promise<void>): Promise<void> {
  const sql = postgres(server.adminUrl, { max: 1, onnotice: () => {} })
  const settings = { max_wal_size: '16GB', full_page_writes: 'off' }
  try {
    for (const [name, value] of Object.entries(settings)) await sql.unsafe(`alter system set ${name} = '${value}'`)
    await sql`select pg_reload_conf()`
    await work()
  } finally {
    for (const name of Object.keys(settings)) await sql.unsafe(`alter system reset ${name}`)
    await sql`select pg_reload_conf()`
    await sql`checkpoint`
    await sql.end()
  }
}
