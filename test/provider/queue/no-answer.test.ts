import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { isNoAnswer } from '../../../src/platform/postgres/errors.ts'
import { createPool, type Database } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { identifyAll } from '../../../src/provider/accounts/identify.ts'
import { readSigningSecret } from '../../../src/provider/accounts/keys.ts'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import * as commands from '../../../src/provider/operating/commands.ts'
import { startProvider } from '../../../src/provider/program.ts'
import {
  cancelRequest,
  type ClaimedRequest,
  claimRequests,
  finishRequest,
  recordProgress,
} from '../../../src/provider/queue/requests.ts'
import { readStatuses } from '../../../src/provider/queue/status-reader.ts'
import { recall } from '../../../src/provider/submit/idempotency.ts'
import { writeSubmission } from '../../../src/provider/submit/submit-statement.ts'
import { resendDelivery } from '../../../src/provider/webhooks/delivery-history.ts'
import { claimDue } from '../../../src/provider/webhooks/outbox-claims.ts'
import { recordAttempt } from '../../../src/provider/webhooks/outbox.ts'
import { messageTypes, startOmittingProxy } from '../../platform/support/omitting-proxy.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { call, testSettings } from '../support/running-provider.ts'

const now = postgresTime()
const id = randomUUID()
const scope = { accountId: 'a', environment: 'live', key: id } as const
const request: ClaimedRequest = {
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
const delivery = {
  id,
  account_id: 'a',
  api_key_id: id,
  url: 'https://x.example/',
  host: 'x.example',
  body: '{}',
  attempts: 1,
  max_attempts: 6,
  faults: null,
}
const attempt = { durationMs: 1, ok: true, httpStatus: 200, detail: '' }
const submission = {
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
} as const
const deps = (db: Database): commands.CommandDeps => ({
  db,
  secretKey: Buffer.alloc(32, 7),
  catalog: builtInCatalog,
  clock: () => new Date(),
  logger: { error: () => {} },
  by: { via: 'cli', actor: 'test' },
})

const statements: [string, (db: Database) => Promise<unknown>][] = [
  ['identifying a caller', (db) => identifyAll(db, ['service_test_unknown'], { perKey: 1, perAccount: 1 }, now)],
  ['submitting', (db) => writeSubmission(db, submission, now)],
  ['looking up an Idempotency-Key', (db) => recall(db, scope, Buffer.alloc(32), now)],
  [
    'reading a status',
    (db) => readStatuses(db, new Map(), [{ requestId: id, accountId: 'a', environment: 'live', withLogs: false }]),
  ],
  ['claiming requests', (db) => claimRequests(db, { environment: 'live', limit: 1, leaseSeconds: 1, now })],
  ['recording progress', (db) => recordProgress(db, request, { progress: 1, logLines: [], leaseSeconds: 1, now })],
  ['finishing', (db) => finishRequest(db, request, { kind: 'canceled' }, { now, random: () => 0 })],
  ['canceling', (db) => cancelRequest(db, id, false)],
  ['claiming deliveries', (db) => claimDue(db, { now, leaseSeconds: 1, inFlight: [], walk: {} })],
  ['recording an attempt', (db) => recordAttempt(db, delivery, attempt, { retryAfterSeconds: undefined, now })],
  ['reading a signing secret', (db) => readSigningSecret(db, id, Buffer.alloc(32, 7))],
  ['sending again', (db) => resendDelivery(db, id, now)],
  ['revoking a key', (db) => commands.revokeKey(deps(db), id)],
  ['changing faults', (db) => commands.setFaults(deps(db), id, null)],
  ['granting', (db) => commands.grantCredits(deps(db), { account: 'a', credits: 1 })],
]

it.each(statements)('%s tells "nothing matched" from "no answer"', async (_what, run) => {
  const database = await withTestDatabase(preferredServer)
  const dropper = await startOmittingProxy(database.url)
  const pool = createPool({ url: dropper.url, max: 1 })
  onTestFinished(() => pool.close())
  // A connection that is open, and knows whether it ends at Postgres itself.
  await identifyAll(pool.db, ['service_test_unknown'], { perKey: 1, perAccount: 1 }, now)
  dropper.omit(messageTypes.dataRow, messageTypes.commandComplete)
  const failure: unknown = await run(pool.db).then(
    () => 'an answer',
    (error: unknown) => error,
  )
  expect(isNoAnswer(failure), String(failure)).toBe(true)
})

it('a call is 503, never 401, if identifying its caller got no answer', async () => {
  const database = await withTestDatabase(preferredServer)
  const dropper = await startOmittingProxy(database.url)
  const settings = await testSettings(dropper.url)
  const program = await startProvider({ settings, logger: createLogger('silent') })
  onTestFinished(() => program.stop(0))
  const url = program.urls['api'] ?? ''
  expect((await call(url, 'GET', '/v1/account', { key: 'service_test_unknown' })).status).toBe(401)
  dropper.omit(messageTypes.dataRow, messageTypes.commandComplete)
  expect(await call(url, 'GET', '/v1/account', { key: 'service_test_unknown' })).toMatchObject({
    status: 503,
    body: { error: { code: 'unavailable' } },
  })
})
