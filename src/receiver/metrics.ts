import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { withDeadline } from '../platform/deadline.ts'
import type { Logger } from '../platform/logger.ts'
import type { FailingRole } from '../platform/loop.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { readTime, type SharedTime } from '../platform/postgres/time.ts'
import { readBalances } from './gauges/balances.ts'
import { remainingCalls } from './gauges/call-budgets.ts'
import { countParked, inboxDepth } from './gauges/inbox-depth.ts'
import { readNotifyQueue } from './gauges/notify-queue.ts'
import { countOverdue } from './gauges/overdue.ts'
import { unsequencedSeconds } from './gauges/unsequenced.ts'
import { lastRunEndedAt } from './reconciling/reconciler.ts'

export type MetricsDeps = {
  registry: Registry
  db: Database
  time: SharedTime
  fetchRatePerMinute: number
  stuckAfterSeconds: number
  logger: Logger
}

/** Reads the figures of a scrape. Undefined if that fails: the scrape leaves them out, and reports all others. */
export async function readForScrape<T>(logger: Logger, what: string, read: () => Promise<T>): Promise<T | undefined> {
  try {
    // Well below Prometheus's scrape timeout of 10 s.
    return await withDeadline(read(), 3000, `reading ${what}`)
  } catch (error) {
    logger.warn({ err: error }, `this scrape leaves out ${what}`)
    return undefined
  }
}

type Series = readonly (readonly [labels: Record<string, string>, value: number])[]
type ReadGauge = { name: string; help: string; labelNames?: string[]; read: () => Promise<Series | undefined> }

/** Registers a gauge that is read at each scrape. A scrape leaves it out where `read` returns undefined. */
export function registerGauge(registry: Registry, { name, help, labelNames = [], read }: ReadGauge): void {
  void new Gauge({
    name,
    help,
    labelNames,
    registers: [registry],
    async collect() {
      const series = await read()
      // A gauge without labels would be reset to 0.
      if (labelNames.length === 0) this.remove()
      else this.reset()
      for (const [labels, value] of series ?? []) this.set(labels, value)
    },
  })
}

/** The reasons of a 503 to a delivery: see accept.ts, body-reader.ts and webhook.ts. */
const unavailableReasons = [
  'postgres_failed',
  'postgres_too_slow',
  'too_much_waiting',
  'too_much_being_received',
  'internal_error',
]

/**
 * Registers the metrics that docs/observe.md describes. Metrics of the state in Postgres are read at each scrape. If
 * that fails they are left out, and all others are still reported.
 */
export function createReceiverMetrics(deps: MetricsDeps) {
  const { registry } = deps
  const registers = [registry]
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter({ name, help, labelNames, registers })

  let reading: Promise<Readings | undefined> | undefined
  // One reading for all gauges of a scrape, which are collected at the same time.
  const read = () =>
    (reading ??= readForScrape(deps.logger, 'the metrics that are read from Postgres', () =>
      readPostgres(deps),
    ).finally(() => {
      reading = undefined
    }))
  const gauge = (name: string, help: string, pick: (readings: Readings) => number) =>
    registerGauge(registry, { name, help, read: async () => seriesOf(await read(), (all) => [[{}, pick(all)]]) })
  gauge('mediadock_inbox_pending', 'Deliveries that are accepted and not yet processed', ({ pending }) => pending)
  gauge(
    'mediadock_inbox_oldest_seconds',
    'Age of the oldest delivery that is not yet processed',
    ({ oldestSeconds }) => oldestSeconds,
  )
  gauge(
    'mediadock_requests_overdue',
    'Tracked requests without a terminal state for longer than STUCK_AFTER_SECONDS',
    ({ overdue }) => overdue,
  )
  gauge(
    'mediadock_feed_unsequenced_seconds',
    'How long the oldest change has waited for its position in the feed; 0 while none waits',
    ({ unsequenced }) => unsequenced,
  )
  gauge(
    'mediadock_notify_queue_usage',
    'Share of the NOTIFY queue of Postgres that is in use, 0 to 1; from 0.5 on readers are not notified',
    ({ notifyQueueUsage }) => notifyQueueUsage,
  )
  gauge(
    'mediadock_deliveries_parked',
    'Deliveries that were stored and could not be parsed or landed',
    ({ parked }) => parked,
  )
  gauge(
    'mediadock_reconcile_last_run_timestamp_seconds',
    'When a run of the reconciler last ended, on any replica; 0 before the first',
    ({ lastRunAt }) => (lastRunAt?.getTime() ?? 0) / 1000,
  )
  registerGauge(registry, {
    name: 'mediadock_postgres_up',
    help: '1 when this scrape could read Postgres, else 0',
    read: async () => [[{}, (await read()) === undefined ? 0 : 1]],
  })
  const gaugeByKey = (name: string, help: string, pick: (readings: Readings) => Iterable<readonly [string, number]>) =>
    registerGauge(registry, {
      name,
      help,
      labelNames: ['key_name'],
      read: async () =>
        seriesOf(await read(), (all) => [...pick(all)].map(([key_name, value]) => [{ key_name }, value])),
    })
  gaugeByKey(
    'mediadock_quota_remaining',
    'Calls that a key has left in this minute, of its own limit and of its account',
    ({ quota }) => quota,
  )
  gaugeByKey(
    'mediadock_balance_credits',
    'Credits of the account of a key, as the provider last said; asked for once an hour',
    ({ balances }) => balances.accounts.map(({ keyName, credits }) => [keyName, credits]),
  )
  gaugeByKey(
    'mediadock_spent_last_hour_credits',
    'Credits that requests of the account of a key had cost in the hour before its balance was read',
    ({ balances }) => balances.accounts.map(({ keyName, spentLastHour }) => [keyName, spentLastHour]),
  )
  gaugeByKey(
    'mediadock_credits_refused',
    '1 for each key whose submits the provider refused with 402 insufficient_credits in the last hour',
    ({ balances }) => balances.refused.map(({ keyName }) => [keyName, 1]),
  )
  gaugeByKey(
    'mediadock_cost_difference_ratio',
    "Share by which the landed cost of 30 days differs from the provider's usage of the account",
    ({ balances }) =>
      balances.accounts.flatMap(({ keyName, difference }) => (difference === null ? [] : [[keyName, difference]])),
  )

  const metrics = {
    /** A role has a series while its last round failed. */
    watchRoles: (failingRoles: () => readonly FailingRole[]) =>
      registerGauge(registry, {
        name: 'mediadock_role_failures',
        help: 'Consecutive failed rounds of a background role of this process',
        labelNames: ['role'],
        read: async () => failingRoles().map(({ role, failures }) => [{ role }, failures]),
      }),
    arrivals: counter('mediadock_arrivals_total', 'HTTP arrivals by outcome', 'outcome', 'reason', 'source_name'),
    ackSeconds: new Histogram({
      name: 'mediadock_ack_seconds',
      help: 'From the headers of a delivery to its acknowledgement',
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    storedBytes: counter(
      'mediadock_stored_bytes_total',
      'Bodies of deliveries that were stored, by the key that signed them',
      'key_name',
    ),
    landed: counter(
      'mediadock_landed_total',
      'Results that became terminal or complete',
      'status',
      'source',
      'source_name',
    ),
    landingSeconds: new Histogram({
      name: 'mediadock_landing_seconds',
      help: 'From the arrival of a delivery to its row of results',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
    providerCalls: counter(
      'mediadock_provider_calls_total',
      'Calls to the provider',
      'operation',
      'outcome',
      'source_name',
    ),
    reconcileRuns: counter('mediadock_reconcile_runs_total', 'Runs of the reconciler', 'outcome'),
    timestampMismatches: counter(
      'mediadock_timestamp_mismatch_total',
      'Deliveries whose X-Service-Timestamp differs from the signed t',
    ),
    connectionsClosed: counter('mediadock_connections_closed_total', 'Connections that the receiver closed', 'reason'),
    logDropped: counter(
      'mediadock_arrival_log_dropped_total',
      'Arrivals dropped because the log was full or Postgres refused their rows',
    ),
    pollsDropped: counter(
      'mediadock_poll_log_dropped_total',
      'Polls dropped because their log was full or Postgres refused their rows',
    ),
    signInsRefused: counter(
      'mediadock_sign_ins_refused_total',
      'Wrong tokens sent to the internal listener, including those answered 429',
      'reason',
    ),
    quarantineDropped: counter(
      'mediadock_quarantine_dropped_total',
      'Refused arrivals dropped because the quarantine was full or Postgres refused their rows',
    ),
    unsignedHintsDropped: counter(
      'mediadock_unsigned_hints_dropped_total',
      'Unsigned webhooks whose request gets no extra poll, because too many came at once',
    ),
  }
  // Counters with alerts start at 0, since a series that first appears with its first event shows no increase.
  for (const reason of unavailableReasons) metrics.arrivals.inc({ outcome: 'unavailable', reason }, 0)
  metrics.providerCalls.inc({ operation: 'result', outcome: 'unauthorized' }, 0)
  for (const reason of ['wrong_token', 'too_many_attempts']) metrics.signInsRefused.inc({ reason }, 0)
  for (const outcome of ['ok', 'error']) metrics.reconcileRuns.inc({ outcome }, 0)
  return metrics
}

type Readings = Awaited<ReturnType<typeof readPostgres>>

function seriesOf(readings: Readings | undefined, pick: (readings: Readings) => Series): Series | undefined {
  return readings && pick(readings)
}

async function readPostgres({ db, time, fetchRatePerMinute, stuckAfterSeconds }: MetricsDeps) {
  const now = await readTime(db, time)
  return {
    ...(await inboxDepth(db, now)),
    unsequenced: await unsequencedSeconds(db, now),
    notifyQueueUsage: (await readNotifyQueue(db)).usage,
    overdue: await countOverdue(db, { now, stuckAfterSeconds }),
    parked: await countParked(db),
    lastRunAt: await lastRunEndedAt(db),
    balances: await readBalances(db, now),
    quota: await remainingCalls(db, fetchRatePerMinute, now),
  }
}
