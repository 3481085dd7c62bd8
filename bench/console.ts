import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../src/laptop/embedded-postgres.ts'
import { createLogger } from '../src/platform/logger.ts'
import { migrate } from '../src/platform/postgres/migrate.ts'
import { deliveryOutcomes } from '../src/receiver/queries/filters.ts'
import { fillTables, knownIds, type Known } from './console-data.ts'
import { startReceiverProcess } from './contenders.ts'

const pageMs = 200
const filterMs = 500
const warmUps = 2

type Measured = { path: string; medianMs: number; worstMs: number; limitMs: number }

/** `npm run bench -- console`: how long each page and filter of the console takes with a month of data. */
export async function benchConsole(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean' },
      deliveries: { type: 'string' },
      arrivals: { type: 'string' },
      samples: { type: 'string' },
      /** A folder to keep the tables in: filled once, and measured as often as one likes. */
      data: { type: 'string' },
      /** Measures only the paths that hold this text. */
      only: { type: 'string' },
    },
  })
  const sizes = {
    deliveries: Number(values.deliveries ?? (values.quick ? 10_000 : 1_000_000)),
    arrivals: Number(values.arrivals ?? (values.quick ? 50_000 : 5_000_000)),
  }
  const folder = values.data ? path.resolve(values.data) : await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  await fs.mkdir(folder, { recursive: true })
  // Only reading is measured. Filling is faster if the server does not wait for the disk.
  const settings = { fsync: 'off', synchronous_commit: 'off', max_wal_size: '16GB' }
  const server = await startEmbeddedPostgres({ dataDir: folder, logger: createLogger('warn'), settings })
  const sql = postgres(server.url, { max: 1, onnotice: () => {} })
  const say = (line: string) => void process.stderr.write(`${line}\n`)
  try {
    await migrate({
      url: server.url,
      schema: 'mediadock',
      folder: path.resolve(import.meta.dirname, '../drizzle/receiver'),
    })
    const [filled] = await sql`select from mediadock.deliveries limit 1`
    if (!filled) await fillTables(sql, { url: server.url, sizes, say })
    const env = { RECONCILE_CRON: '0 0 1 1 *', RETENTION_CRON: '0 0 1 1 *', GENERATION_KEYS: keys }
    const receiver = await startReceiverProcess({ databaseUrl: server.url, env })
    try {
      const rows: Measured[] = []
      const wanted = paths(await knownIds(sql)).filter(([where]) => where.includes(values.only ?? ''))
      for (const [where, limitMs] of wanted) {
        rows.push({
          path: where,
          limitMs,
          ...(await measure(new URL(where, receiver.consoleUrl), Number(values.samples ?? 11))),
        })
      }
      process.stdout.write(`\n${report(rows, await counts(sql))}`)
    } finally {
      await receiver.stop()
    }
  } finally {
    await sql.end()
    await server.stop()
    if (!values.data) await fs.rm(folder, { recursive: true, force: true })
  }
}

const keys = JSON.stringify([
  { name: 'live', api_key: 'service_live_of_the_benchmark', signing_secret: 'whsec_of_the_benchmark' },
  { name: 'sandbox', api_key: 'service_test_of_the_benchmark', signing_secret: 'whsec_of_the_benchmarks_sandbox' },
  { name: 'old', signing_secret: 'whsec_of_an_old_key', retired: true },
])

/** Pages and filters of an operator, each with its time limit. */
function paths({ deliveryId, webhookId, requestId }: Known): [string, number][] {
  const middle = `since=${iso(15)}&until=${iso(14)}`
  const ofDeliveries = [
    ...['pending', 'processed', 'parked'].map((state) => `state=${state}`),
    ...deliveryOutcomes.map((outcome) => `outcome=${outcome}`),
    ...['landing_failed', 'nothing_like_it'].map((reason) => `reason=${reason}`),
    ...['live', 'rare', 'old', 'absent'].map((key) => `key_name=${key}`),
    ...['vela', 'seldom-used', 'absent'].map((model) => `model=${model}`),
    `request_id=${requestId}`,
    `webhook_id=${webhookId}`,
    middle,
    `${middle}&key_name=absent`,
    'state=processed&key_name=sandbox&outcome=landed',
    'min_ack_ms=60000',
    'min_skew_seconds=1',
    'min_arrivals=3',
  ]
  const ofArrivals = [
    ...['pending', 'processed', 'parked'].map((state) => `state=${state}`),
    ...['accepted', 'duplicate', 'parked', 'refused', 'unavailable'].map((outcome) => `outcome=${outcome}`),
    ...['no_matching_secret', 'malformed_header', 'nothing_like_it'].map((reason) => `reason=${reason}`),
    ...['live', 'rare', 'old', 'absent'].map((key) => `key_name=${key}`),
    `request_id=${requestId}`,
    `webhook_id=${webhookId}`,
    'min_ack_ms=60000',
    'min_skew_seconds=1',
    middle,
  ]
  const ofRequests = [
    ...['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED'].map((status) => `status=${status}`),
    ...['vela', 'seldom-used', 'absent'].map((model) => `model=${model}`),
    ...['live', 'rare', 'absent'].map((key) => `key_name=${key}`),
    'overdue=true',
    'overdue=false',
    middle,
  ]
  const pages = [
    '/',
    '/deliveries',
    '/deliveries?view=arrivals',
    `/deliveries/${deliveryId}`,
    '/requests',
    `/requests/${requestId}`,
    '/now',
    '/now/charts',
    '/issues',
    '/search',
    `/search?q=${requestId}`,
    `/search?q=${requestId.slice(0, 8)}`,
    `/search?q=${webhookId}`,
    '/search?q=absent',
    '/deliveries/replays',
    `/deliveries/replay?ids=${deliveryId}`,
    '/parked',
    '/parked?view=parked',
    '/parked?view=quarantine',
    '/parked?reason=no_matching_secret',
    '/parked/verify?reason=no_matching_secret',
    '/reconciler',
    '/keys',
    '/subscriptions',
    '/audit',
    '/docs',
    '/metrics',
  ]
  const readings = [
    'stats',
    'problems',
    'keys',
    'give-ups',
    'minutes',
    'reconciler',
    'reconciler/runs',
    'audit',
    'quarantine',
    'quarantine/causes',
    'parked/causes',
  ]
  return [
    ...pages.map((where): [string, number] => [where, pageMs]),
    ...readings.map((name): [string, number] => [`/api/${name}`, pageMs]),
    ...ofDeliveries.map((filter): [string, number] => [`/deliveries?${filter}`, filterMs]),
    ...ofArrivals.map((filter): [string, number] => [`/deliveries?view=arrivals&${filter}`, filterMs]),
    ...ofRequests.map((filter): [string, number] => [`/requests?${filter}`, filterMs]),
    [`/api/minutes?since=${iso(28)}`, filterMs],
    ...['via=cli', 'actor=nobody', 'action=replay'].map((filter): [string, number] => [`/audit?${filter}`, filterMs]),
  ]
}

function iso(daysAgo: number): string {
  return new Date(Date.now() - daysAgo * 86_400_000).toISOString()
}

async function measure(url: URL, samples: number): Promise<{ medianMs: number; worstMs: number }> {
  const times: number[] = []
  for (let sample = -warmUps; sample < samples; sample += 1) {
    const started = performance.now()
    const answer = await fetch(url, { headers: { accept: 'text/html,application/json' } })
    const text = await answer.text()
    // A query that runs into its deadline is answered 503: that is far too long, and says enough.
    if (answer.status === 503) return { medianMs: performance.now() - started, worstMs: performance.now() - started }
    if (answer.status !== 200) throw new Error(`${url.href}: ${answer.status} ${text.slice(0, 200)}`)
    if (sample >= 0) times.push(performance.now() - started)
  }
  times.sort((a, b) => a - b)
  return { medianMs: times[Math.floor(times.length / 2)] ?? NaN, worstMs: times.at(-1) ?? NaN }
}

async function counts(sql: postgres.Sql): Promise<string> {
  const [row] =
    await sql`select (select count(*) from mediadock.deliveries)::int as deliveries, (select count(*) from mediadock.arrivals)::int as arrivals, pg_size_pretty(pg_database_size(current_database())) as size`
  return `${row?.['deliveries']} deliveries, ${row?.['arrivals']} arrivals, ${row?.['size']}`
}

function report(rows: readonly Measured[], data: string): string {
  const late = rows.filter(({ medianMs, limitMs }) => medianMs > limitMs)
  return [
    `${os.availableParallelism()} cores, Node ${process.version}, ${data}`,
    '',
    '| page or filter | median ms | worst ms | at most ms |',
    '|---|---|---|---|',
    ...rows.map(
      (row) =>
        `| ${row.path.replaceAll('|', '\\|')} | ${row.medianMs.toFixed(0)} | ${row.worstMs.toFixed(0)} | ${row.limitMs}${row.medianMs > row.limitMs ? ' **exceeded**' : ''} |`,
    ),
    '',
    late.length === 0 ? 'All are within their time.' : `${late.length} of ${rows.length} are not within their time.`,
    '',
  ].join('\n')
}
