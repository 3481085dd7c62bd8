import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { z } from 'zod'
import { startEmbeddedPostgres } from '../../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { testServers, type TestServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startPackagedPostgres } from '../../support/packaged-postgres.ts'
import { quickFolder } from '../../support/quick-folder.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio, type Sample } from '../../support/webhooks.ts'

/*
 * How Postgres runs what a receiver sends it from the socket to the result, as
 * its own log has it (auto_explain), beside large tables of which it knows
 * nothing, or nothing that is still true: no plan may read one of them or be compiled first,
 * and that of an ordinary landing may not even be so dear that it would be.
 */

const rows = 20_000
const crowd = 500
/** Each may be a separate statement with its own plan. */
const sizes = [1, 10, 100, crowd]
/** Rows or pages of one table in one part of a statement: a few look-ups for each delivery that it lands. */
const mostRowsRead = crowd * 20
/** From which on requests have landed that are contradicted under each of the statistics. */
const contradicted = { stale: 0, missing: crowd, 'of an empty inbox': 2 * crowd, 'of bursts': 3 * crowd }
/** `jit_above_cost` of a server as it comes. */
const jitAboveCost = 100_000
const newline = 0x0a
const largeTables = ['deliveries', 'requests', 'media', 'attempts', 'inbox']

describe.each(testServers)('the plans of a landing (%s)', (name) => {
  let server: PlansServer
  let old: TestReceiver
  beforeAll(async () => {
    server = await startPlansServer(name)
    old = await fill(server)
  })
  afterAll(() => server.remove())

  it('made on nearly empty tables and kept stay fast', async () => {
    const { sql } = server
    await server.plans()
    for (const size of sizes) await landDue(sql, size)
    expect((await deliver(old.webhookUrl, okAudio().body)).status).toBe(200)
    await untilLanded(sql)
    await old.stop()
    const plans = (await server.plans()).filter(isOfLanding)
    for (const table of largeTables) expect(plans.some(({ writes }) => writes.has(table))).toBe(true)
    expectNoWholeTable(plans)
  })

  it('of one more delivery of a request with many read only its own flags', async () => {
    const { sql } = server
    const one = okAudio()
    await addDue(sql, [one])
    await startAndLand(server)
    await sql`
      insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      select md5('m' || i)::uuid, md5('m' || i), ${one.requestId}, 'OK', 'live', now(), now(), '{}', '{}'
      from generate_series(1, ${2 * mostRowsRead}::int) as i`
    await addDue(sql, [failed(one.requestId)])
    const plans = await startAndLand(server)
    expect(plans.some(({ writes }) => writes.has('deliveries'))).toBe(true)
    expectNoWholeTable(plans)
  })

  describe.each(['stale', 'missing', 'of an empty inbox', 'of bursts'] as const)('statistics %s', (statistics) => {
    beforeAll(async () => {
      if (statistics === 'missing') await forgetStatistics(server.sql)
      if (statistics === 'of an empty inbox') await inboxWasEmpty(server.sql)
      if (statistics === 'of bursts') await cameInBursts(server.sql)
    })

    it(`of ${crowd} new ones, and of one`, async () => {
      const { sql } = server
      await addDue(
        sql,
        Array.from({ length: crowd }, () => okAudio()),
      )
      const one = okAudio()
      const plans = await plansWhile(server, async ({ webhookUrl }) => {
        await untilLanded(sql)
        expect((await deliver(webhookUrl, one.body)).status).toBe(200)
        await eventually(
          async () =>
            (await sql`select from mediadock.results where request_id = ${one.requestId} and status = 'COMPLETED'`)
              .length === 1,
        )
        await untilLanded(sql)
      })
      // Nothing is shown by plans that are not there.
      const landed = plans.flatMap(({ writes }) => writes.get('requests') ?? [])
      expect(Math.max(...landed)).toBe(crowd)
      expect(landed).toContain(1)
      for (const table of largeTables) expect(plans.some(({ writes }) => writes.has(table))).toBe(true)

      expectNoWholeTable(plans)
      expect(plans.filter(({ cost }) => cost >= jitAboveCost).map(({ text, cost }) => ({ text, cost }))).toEqual([])
    })

    // By the long way, whose estimate may well be above that: there only its session keeps JIT away.
    it(`of ${crowd} that contradict stored results`, async () => {
      const { sql } = server
      const known = await sql<{ id: string }[]>`
        select request_id as id from mediadock.requests where status = 'COMPLETED'
          and landed_at < (select min(landed_at) from mediadock.requests) + interval '1 hour'
        order by request_id offset ${contradicted[statistics]} limit ${crowd}`
      await addDue(
        sql,
        known.map(({ id }) => failed(id)),
      )
      const plans = await startAndLand(server)
      const [row] = await sql`
        select count(*)::int as n from mediadock.deliveries where 'contradiction' = any(flags) and request_id = any(${known.map(({ id }) => id)}::uuid[])`
      expect(row?.['n']).toBe(crowd)
      expectNoWholeTable(plans)
    })
  })
})

/** Returns the plans of a receiver that lands what is due. */
function startAndLand(server: PlansServer): Promise<Plan[]> {
  return plansWhile(server, () => untilLanded(server.sql))
}

/** Returns the plans of landings that a receiver runs during `work`. */
async function plansWhile(server: PlansServer, work: (receiver: TestReceiver) => Promise<void>): Promise<Plan[]> {
  await server.plans()
  const receiver = await startTestReceiver({ databaseUrl: server.url })
  try {
    await work(receiver)
  } finally {
    await receiver.stop()
  }
  return (await server.plans()).filter(isOfLanding)
}

function expectNoWholeTable(plans: readonly Plan[]): void {
  expect(new Set(plans.filter(({ isCompiled }) => isCompiled).map(({ text }) => text))).toEqual(new Set())
  expect(
    plans.flatMap(({ text, reads }) => reads.filter((read) => isWhole(read)).map((read) => ({ text, ...read }))),
  ).toEqual([])
}

type PlansServer = {
  url: string
  sql: postgres.Sql
  /** The plans that were run since the last call, in the order of the log. */
  plans: () => Promise<Plan[]>
  remove: () => Promise<void>
}

/** A separate server, since plans are written to a file per server. */
async function startPlansServer(name: TestServer): Promise<PlansServer> {
  const settings = {
    fsync: 'off',
    session_preload_libraries: 'auto_explain',
    'auto_explain.log_min_duration': '0',
    'auto_explain.log_analyze': 'on',
    'auto_explain.log_timing': 'off',
    'auto_explain.log_buffers': 'on',
    'auto_explain.log_format': 'json',
    'auto_explain.log_parameter_max_length': '0',
    // Triggers per row are included.
    'auto_explain.log_nested_statements': 'on',
    logging_collector: 'on',
    log_destination: 'jsonlog',
    log_directory: 'log',
    log_filename: 'plans.log',
    log_rotation_size: '0',
    // A session with JIT on compiles every statement.
    jit_above_cost: '0',
  }
  const own = name === 'embedded' ? await startEmbedded(settings) : await startPackaged(settings)
  await migrate({
    url: own.url,
    schema: 'mediadock',
    folder: path.resolve(import.meta.dirname, '../../../drizzle/receiver'),
  })
  const sql = postgres(own.url, {
    max: 1,
    onnotice: () => {},
    connection: { jit: 'off', 'auto_explain.log_min_duration': '-1' },
  })
  let readUntil = 0
  return {
    url: own.url,
    sql,
    plans: async () => {
      // The server's logger writes behind the statements, in their order.
      const mark = `read until ${randomUUID()}`
      await sql.unsafe(`do $$ begin raise log '${mark}'; end $$`)
      const log = await eventually(async () => {
        const bytes = (await fs.readFile(path.join(own.cluster, 'log/plans.json'))).subarray(readUntil)
        return bytes.includes(mark) && bytes.at(-1) === newline && bytes
      })
      readUntil += log.length
      return plansOf(log.toString())
    },
    remove: async () => {
      await sql.end({ timeout: 5 })
      await own.remove()
    },
  }
}

type OwnServer = { url: string; cluster: string; remove: () => Promise<void> }

async function startEmbedded(settings: Record<string, string>): Promise<OwnServer> {
  const dataDir = await fs.mkdtemp(path.join(await quickFolder(), 'mediadock-plans-'))
  const { url, stop } = await startEmbeddedPostgres({ dataDir, logger: createLogger('silent'), settings })
  const remove = async () => {
    await stop()
    await fs.rm(dataDir, { recursive: true, force: true })
  }
  return { url, cluster: path.join(dataDir, 'postgres'), remove }
}

async function startPackaged(settings: Record<string, string>): Promise<OwnServer> {
  const { url, dataDir, remove } = await startPackagedPostgres({
    binaries: inject('packagedBinaries'),
    template: inject('packagedTemplate'),
    settings,
    within: await quickFolder(),
  })
  return { url, cluster: dataDir, remove }
}

/**
 * Twenty thousand processed deliveries, and as many that are not due yet; analyzed while there were
 * ten of each. Answers a receiver that has landed some when there were no more.
 */
async function fill({ sql, url }: PlansServer): Promise<TestReceiver> {
  for (const table of largeTables) await sql`alter table mediadock.${sql(table)} set (autovacuum_enabled = false)`
  await addProcessed(sql, 1, 10)
  await sql`analyze`
  const receiver = await startTestReceiver({ databaseUrl: url })
  for (const size of sizes) await landDue(sql, size)
  expect((await deliver(receiver.webhookUrl, okAudio().body)).status).toBe(200)
  await untilLanded(sql)
  await addProcessed(sql, 11, rows)
  return receiver
}

async function landDue(sql: postgres.Sql, size: number): Promise<void> {
  await addDue(
    sql,
    Array.from({ length: size }, () => okAudio()),
  )
  await untilLanded(sql)
}

async function addProcessed(sql: postgres.Sql, from: number, to: number): Promise<void> {
  await sql`set session_replication_role = replica`
  await sql`
    insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
    select md5('d' || i)::uuid, md5('w' || i), md5('r' || i)::uuid, 'OK', 'live', now(), now() - (${rows} - i) * interval '1 second', '{}', '{}'
    from generate_series(${from}::int, ${to}::int) as i`
  await sql`
    insert into mediadock.requests (request_id, status, model, key_name, key_source, media_complete, source, tracked_at, landed_at)
    select md5('r' || i)::uuid, 'COMPLETED', 'lyra-audio', 'live', 'landed', true, 'webhook', now() - (${rows} - i) * interval '1 second', now() - (${rows} - i) * interval '1 second'
    from generate_series(${from}::int, ${to}::int) as i`
  await sql`
    insert into mediadock.media (request_id, kind, position, url)
    select md5('r' || i)::uuid, 'audio', 0, 'https://media.test/' || i from generate_series(${from}::int, ${to}::int) as i`
  await sql`
    insert into mediadock.attempts (delivery_id, attempted_at, outcome)
    select md5('d' || i)::uuid, now() - (${rows} - i) * interval '1 second', 'landed' from generate_series(${from}::int, ${to}::int) as i`
  await sql`
    insert into mediadock.inbox (delivery_id, due_at)
    select md5('d' || i)::uuid, now() + interval '5 minutes' from generate_series(${from}::int, ${to}::int) as i`
  await sql`set session_replication_role = origin`
}

/** Deliveries as they are stored, due at once. */
async function addDue(sql: postgres.Sql, samples: readonly Sample[]): Promise<void> {
  await sql`
    with due as (
      insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      select gen_random_uuid(), gen_random_uuid()::text, request_id, body::jsonb ->> 'status', 'live', now(), now(), '{}', convert_to(body, 'UTF8')
      from unnest(${samples.map(({ requestId }) => requestId)}::uuid[], ${samples.map(({ body }) => body.toString())}::text[]) as s (request_id, body)
      returning id
    )
    insert into mediadock.inbox (delivery_id, due_at) select id, now() from due`
}

async function untilLanded(sql: postgres.Sql): Promise<void> {
  await eventually(async () => {
    const [row] =
      await sql`select exists (select from mediadock.inbox where due_at <= now() + interval '1 minute') as waiting`
    return row?.['waiting'] === false
  })
}

async function forgetStatistics(sql: postgres.Sql): Promise<void> {
  await sql`delete from pg_statistic where starelid in (select oid from pg_class where relnamespace = 'mediadock'::regnamespace)`
  await sql`update pg_class set reltuples = -1, relpages = 0 where relnamespace = 'mediadock'::regnamespace and relkind in ('r', 'i')`
}

/** As a vacuum leaves them that comes when all has landed, which is most of the time: one row is expected, however many there are later. */
async function inboxWasEmpty(sql: postgres.Sql): Promise<void> {
  await sql`analyze`
  await sql`
    update pg_class set reltuples = 0, relpages = pg_relation_size(oid) / 8192
    where oid in (select 'mediadock.inbox'::regclass union all select indexrelid from pg_index where indrelid = 'mediadock.inbox'::regclass)`
}

/** As of deliveries that came many at a time: Postgres 18 then expects little of skipping through the index by time. */
async function cameInBursts(sql: postgres.Sql): Promise<void> {
  await sql`alter table mediadock.deliveries alter received_at set (n_distinct = 20)`
  await sql`analyze mediadock.deliveries`
}

type Node = {
  'Node Type': string
  'Total Cost': number
  'Actual Rows': number
  'Actual Loops': number
  'Relation Name'?: string | undefined
  'Index Cond'?: string | undefined
  'Rows Removed by Filter'?: number | undefined
  'Rows Removed by Index Recheck'?: number | undefined
  'Shared Hit Blocks'?: number | undefined
  'Shared Read Blocks'?: number | undefined
  Plans?: Node[] | undefined
}
const nodeSchema: z.ZodType<Node> = z.lazy(() =>
  z.object({
    'Node Type': z.string(),
    'Total Cost': z.number(),
    'Actual Rows': z.number(),
    'Actual Loops': z.number(),
    'Relation Name': z.string().optional(),
    'Index Cond': z.string().optional(),
    'Rows Removed by Filter': z.number().optional(),
    'Rows Removed by Index Recheck': z.number().optional(),
    'Shared Hit Blocks': z.number().optional(),
    'Shared Read Blocks': z.number().optional(),
    Plans: z.array(nodeSchema).optional(),
  }),
)
const explainedSchema = z.object({ 'Query Text': z.string(), Plan: nodeSchema, JIT: z.unknown().optional() })
const lineSchema = z.object({ message: z.string().optional(), application_name: z.string().optional() })

type Read = { node: string; table: string; rows: number; pages: number; sortedForEach: boolean }

type Plan = {
  text: string
  isReceiver: boolean
  cost: number
  isCompiled: boolean
  /** By table, how many rows each part of the statement that writes it wrote or gave back. */
  writes: Map<string, number[]>
  reads: Read[]
}

function plansOf(log: string): Plan[] {
  return log.split('\n').flatMap((line) => {
    const json = line === '' ? {} : lineSchema.parse(JSON.parse(line))
    const [, text] = /^duration: .*?plan:\n(.*)$/s.exec(json.message ?? '') ?? []
    if (text === undefined) return []
    const explained = explainedSchema.parse(JSON.parse(text))
    const nodes = withInner(explained.Plan)
    const writes = nodes.filter((node) => node['Node Type'] === 'ModifyTable')
    return {
      text: explained['Query Text'].replaceAll(/\s+/g, ' ').trim().slice(0, 400),
      isReceiver: json.application_name === 'mediadock',
      cost: Math.max(...nodes.map((node) => node['Total Cost'])),
      isCompiled: explained.JIT !== undefined,
      writes: new Map(
        [...Map.groupBy(writes, (node) => node['Relation Name'] ?? '')].map(([table, all]) => [
          table,
          all.map((node) => node['Actual Rows']),
        ]),
      ),
      reads: nodes.flatMap((node) => {
        const table = node['Relation Name']
        if (table === undefined || !largeTables.includes(table) || node['Node Type'] === 'ModifyTable') return []
        const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
        const sortedForEach = node['Actual Loops'] > 1 && / = ANY \((?!ARRAY\[)/.test(node['Index Cond'] ?? '')
        return {
          node: node['Node Type'],
          table,
          rows: (node['Actual Rows'] + removed) * node['Actual Loops'],
          pages: (node['Shared Hit Blocks'] ?? 0) + (node['Shared Read Blocks'] ?? 0),
          sortedForEach,
        }
      }),
    }
  })
}

function withInner(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(withInner)]
}

/** A statement of the receiver that writes one of these tables, or of a trigger that runs for a row of one; not what counts them for the charts. */
function isOfLanding({ isReceiver, writes, text }: Plan): boolean {
  return isReceiver && (largeTables.some((table) => writes.has(table)) || /\bNEW\./.test(text))
}

/** By its kind, even where the plan came to need none of it, or by what it read; or it sorts an array of all for each delivery, which costs as much. */
function isWhole({ node, rows: read, pages, sortedForEach }: Read): boolean {
  return node === 'Seq Scan' || read > mostRowsRead || pages > mostRowsRead || sortedForEach
}
