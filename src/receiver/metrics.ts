import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Database } from '../runtime/postgres.ts'
import { remainingCalls } from './call-budget.ts'
import { depth } from './inbox.ts'
import { countOverdue } from './reconciler.ts'

export type ReceiverMetrics = ReturnType<typeof createReceiverMetrics>

export type MetricsDeps = {
  registry: Registry
  db: Database
  clock: () => Date
  fetchRatePerMinute: number
  stuckAfterSeconds: number
}

/** The metrics of CONTRACT. Those that tell of Postgres are read from it when they are scraped. */
export function createReceiverMetrics({ registry, db, clock, fetchRatePerMinute, stuckAfterSeconds }: MetricsDeps) {
  const registers = [registry]
  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[]) => new Counter({ name, help, labelNames: [...labelNames], registers })

  const gauge = (name: string, help: string, read: () => Promise<number>) =>
    new Gauge({
      name,
      help,
      registers,
      async collect() {
        this.set(await read())
      },
    })
  gauge('mediadock_inbox_pending', 'Deliveries that are accepted and not yet processed', async () => (await depth(db, clock())).pending)
  gauge('mediadock_inbox_oldest_seconds', 'Age of the oldest delivery that is not yet processed', async () => (await depth(db, clock())).oldestSeconds)
  gauge('mediadock_requests_overdue', 'Tracked requests without a terminal state for longer than STUCK_AFTER_SECONDS', () =>
    countOverdue(db, { now: clock(), stuckAfterSeconds }),
  )
  void new Gauge({
    name: 'mediadock_quota_remaining',
    help: 'Calls to the provider that a key has left in this minute',
    labelNames: ['key_name'],
    registers,
    async collect() {
      for (const [key_name, left] of await remainingCalls(db, fetchRatePerMinute, clock())) this.set({ key_name }, left)
    },
  })

  return {
    arrivals: counter('mediadock_arrivals_total', 'HTTP arrivals by outcome', ['outcome', 'reason']),
    ackSeconds: new Histogram({
      name: 'mediadock_ack_seconds',
      help: 'From the headers of a delivery to its acknowledgement',
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    landed: counter('mediadock_landed_total', 'Results that became terminal or complete', ['status', 'source']),
    landingSeconds: new Histogram({
      name: 'mediadock_landing_seconds',
      help: 'From the arrival of a delivery to its row of results',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
    providerCalls: counter('mediadock_provider_calls_total', 'Calls to the provider', ['operation', 'outcome']),
    reconcileRuns: counter('mediadock_reconcile_runs_total', 'Runs of the reconciler', ['outcome']),
    timestampMismatches: counter('mediadock_timestamp_mismatch_total', 'Deliveries whose X-Service-Timestamp differs from the signed t', []),
    logDropped: counter('mediadock_arrival_log_dropped_total', 'Arrivals that the log had no room for', []),
    pollsDropped: counter('mediadock_poll_log_dropped_total', 'Questions to the provider that the log of them had no room for', []),
    quarantineDropped: counter('mediadock_quarantine_dropped_total', 'Refused arrivals that the quarantine had no room for', []),
  }
}
