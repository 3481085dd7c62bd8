import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { createPool, type Database } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import * as providerKeys from '../../../src/provider/accounts/keys.ts'
import * as ledger from '../../../src/provider/accounts/ledger.ts'
import * as requests from '../../../src/provider/queue/requests.ts'
import { createStatusReader } from '../../../src/provider/queue/status-reader.ts'
import * as idempotency from '../../../src/provider/submit/idempotency.ts'
import { writeSubmission } from '../../../src/provider/submit/submit-statement.ts'
import { trackRequest } from '../../../src/receiver/api/track.ts'
import { sessions } from '../../../src/receiver/domain/on-call-schema.ts'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import { countParked, inboxDepth } from '../../../src/receiver/gauges/inbox-depth.ts'
import { countOverdue } from '../../../src/receiver/gauges/overdue.ts'
import * as inbox from '../../../src/receiver/landing/inbox.ts'
import { landOne } from '../../../src/receiver/landing/land-reports.ts'
import { landExplained, replayDelivery } from '../../../src/receiver/landing/replay.ts'
import { reportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import * as intents from '../../../src/receiver/submitting/generations.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { reportOf } from '../../support/report.ts'
import { createTestWorker } from '../../support/worker.ts'
import { startMutePostgres } from '../support/mute-postgres.ts'

/* Where "nothing matched" means something, an answer that got lost must not be taken for it. */

const id = randomUUID()
const now = new Date()
const time = postgresTime()
const claimed = { deliveryId: id, claims: 1, failures: 0, webhookId: 'w', keyName: 'live', receivedAt: now }
const sharedNow = postgresTime()
const failure = { claimed, reason: 'landing_failed' as const, detail: 'x', now: sharedNow }
const running: requests.ClaimedRequest = {
  id,
  claims: 1,
  api_key_id: id,
  environment: 'live',
  model: 'm',
  input: {},
  engine: { name: 'local-image', type: 'image', settings: {} },
  remote_job: null,
  cost: '1',
  webhook_url: null,
  faults: null,
  attempts: 1,
}
const origin = {
  via: 'poll' as const,
  source_name: null,
  reporting_key: 'live',
  environment: 'live' as const,
}
const landing = reportToLand(reportOf({ request_id: id, status: 'CANCELED' }), origin, undefined)
const at = { now: sharedNow, keys: () => keysOf(liveKey) }
const scope = { accountId: 'a', environment: 'live' as const, key: id }

it.each<[string, (db: Database, url: string) => Promise<unknown>]>([
  ['a list of the builder is not "there are none"', (db) => db.select().from(sessions)],
  [
    'a claim of deliveries is not "nothing is due"',
    (db) => inbox.claimDeliveries(db, { limit: 1, maxBytes: 1, now: sharedNow }),
  ],
  ['giving a delivery back is not "lost"', (db) => inbox.putOffOrPark(db, failure)],
  ['parking is not "lost"', (db) => inbox.park(db, failure)],
  ['counting what is pending is not "none"', (db) => inboxDepth(db, now)],
  ['counting what is parked is not "none"', (db) => countParked(db)],
  ['a landing is not "raced"', (db) => landOne(db, landing, at)],
  ['an explained landing', (db) => landExplained(db, landing, { ...at, dryRun: false })],
  [
    'a replay is not "there is no such delivery"',
    (_db, databaseUrl) => replayDelivery(createTestWorker({ databaseUrl }), id, { dryRun: false }),
  ],
  [
    'a run of the reconciler is not "nothing is due"',
    (_db, databaseUrl) => reconciler.runOnce(createTestWorker({ databaseUrl })),
  ],
  [
    'polling one request is not "not tracked"',
    (_db, databaseUrl) => reconciler.reconcileOne(createTestWorker({ databaseUrl }), id),
  ],
  ['counting what is overdue is not "none"', (db) => countOverdue(db, { now, stuckAfterSeconds: 1 })],
  [
    'the row of a run',
    (db) =>
      reconciler.recorded({ db, time: () => time }, 'manual', async () => ({
        scanned: 1,
        landed: 0,
        running: 0,
        notFound: 0,
        failed: 0,
        postponed: 0,
        rateLimited: 0,
      })),
  ],
  [
    'a call to the provider is not "the quota is spent"',
    (db) => takeCall(db, { keyName: 'live', limitPerMinute: 1, purpose: 'completing', now: postgresTime() }),
  ],
  ['tracking is not "known already"', (db) => trackRequest(db, { request_id: id }, { environment: 'live', now: time })],
  [
    'an intent is not "used with other parameters"',
    (db) =>
      intents.open(db, {
        idempotencyKey: id,
        model: 'm',
        input: {},
        keyName: 'live',
        webhookUrl: 'https://x',
        metadata: undefined,
        now: time,
      }),
  ],
  ['a claim of intents is not "nothing is due"', (db) => intents.claimDue(db, { limit: 1, now: time })],
  ['finding an intent is not "unknown"', (db) => intents.find(db, id)],
  [
    'a submit is not "the balance is too low"',
    (db) =>
      writeSubmission(
        db,
        {
          requestId: id,
          accountId: 'a',
          keyId: id,
          environment: 'live',
          model: 'm',
          input: {},
          engine: { name: 'local-image', type: 'image', settings: {} },
          cost: '1',
          webhookUrl: undefined,
          faults: null,
          idempotency: undefined,
          completed: undefined,
        },
        time,
      ),
  ],
  ['an Idempotency-Key is not "never used"', (db) => idempotency.recall(db, scope, Buffer.alloc(32), time)],
  [
    'a claim of requests is not "the queue is empty"',
    (db) => requests.claimRequests(db, { environment: 'live', limit: 1, leaseSeconds: 1, now: time }),
  ],
  [
    'progress is not "ours no longer"',
    (db) => requests.recordProgress(db, running, { progress: 1, logLines: [], leaseSeconds: 1, now: time }),
  ],
  [
    'an end is not "ended already"',
    (db) => requests.finishRequest(db, running, { kind: 'canceled' }, { now: time, random: () => 0 }),
  ],
  ['a cancel is not "ended already"', (db) => requests.cancelRequest(db, id, true)],
  ['a grant is not a balance of 0', (db) => ledger.grant(db, { accountId: 'a', credits: '1' })],
  ['an account is not "known already"', (db) => ledger.openAccount(db, 'a')],
  ['a check of the ledger is not "no problems"', (db) => ledger.checkLedger(db)],
  ['revoking a key is not "there is no such key"', (db) => providerKeys.revokeKey(db, id)],
  ['faults of a key are not "there is no such key"', (db) => providerKeys.updateFaults(db, id, null)],
  [
    'a status is not "unknown"',
    (db) => createStatusReader(db)({ requestId: id, accountId: 'a', environment: 'live', withLogs: false }),
  ],
])(
  'an incomplete answer: %s',
  async (_what, ask) => {
    const url = await startMutePostgres()
    const pool = createPool({ url, max: 1 })
    onTestFinished(() => pool.close())
    await expect(ask(pool.db, url)).rejects.toThrow()
  },
  10_000,
)
