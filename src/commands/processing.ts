import { programs, readConfig } from '../config/config.ts'
import { laptopEnvironment, readLocalSecrets } from '../laptop/local.ts'
import { createLogger } from '../platform/logger.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { postgresTime } from '../platform/postgres/time.ts'
import { withSetting, type ProcessEnvironment } from '../platform/settings.ts'
import { createSourceReads, type SourceReads } from '../receiver/accounts/source-reads.ts'
import { createFetcher } from '../receiver/fetching/fetcher.ts'
import { createPollLog } from '../receiver/fetching/poll-log.ts'
import { createSourceClient } from '../receiver/fetching/source-client.ts'
import { createPollKeeper, createSetAside } from '../receiver/reconciling/poll-claims.ts'
import type { PollingDeps } from '../receiver/reconciling/polling.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'
import { withReceiverDatabase } from './database.ts'

/** A command ends before its counters could be scraped. */
const notCounted = { inc: () => {} }

export type WithReceiver = { db: Database; settings: ReceiverSettings; interrupted: AbortSignal }

/** Calls `work` with the receiver's settings and database. Ctrl-C aborts `interrupted`. */
export async function withReceiver<T>(env: ProcessEnvironment, work: (given: WithReceiver) => Promise<T>): Promise<T> {
  const interruption = new AbortController()
  const interrupt = () => interruption.abort()
  process.once('SIGINT', interrupt)
  try {
    return await withReceiverDatabase(env, async (db, databaseUrl) => {
      const settings = await readSettings(env, databaseUrl)
      return work({ db, settings, interrupted: interruption.signal })
    })
  } finally {
    process.off('SIGINT', interrupt)
  }
}

/**
 * Reads from the provider, within the budget of the keys. The keys of a command may be wrong, so an answer to them does
 * not pause the keys of the same names in a running receiver.
 */
export function providerReadsOf({ db, settings, interrupted: cut }: WithReceiver): SourceReads {
  const { keys, fetchRatePerMinute, generationApiUrl: baseUrl } = settings
  const client = createSourceClient({ baseUrl, fetch, clock: () => new Date() })
  const asking = { keys: () => keys, fetchRatePerMinute, calls: notCounted, cut, keyEffect: () => 'none' as const }
  return createSourceReads({ db, client, time: postgresTime, logger: createLogger('silent'), ...asking })
}

/** Calls `work` with the receiver's own dependencies of landing and polling, within the same call budget. */
export async function withProcessing<T>(
  env: ProcessEnvironment,
  work: (deps: PollingDeps, interrupted: AbortSignal) => Promise<T>,
): Promise<T> {
  return withReceiver(env, async ({ db, settings, interrupted }) => {
    const [clock, time, logger, keys] = [() => new Date(), postgresTime, createLogger('silent'), () => settings.keys]
    const { fetchRatePerMinute, stuckAfterSeconds, mediaHosts, generationApiUrl: baseUrl } = settings
    const client = createSourceClient({ baseUrl, fetch, clock })
    const pollLog = createPollLog({ db, dropped: notCounted, wake: () => {} })
    const shared = { db, keys, mediaHosts, clock, time, logger, fetchRatePerMinute, stuckAfterSeconds }
    const fetcher = createFetcher({ ...shared, client, calls: notCounted, onPolled: pollLog.record })
    const claims = { keepLease: createPollKeeper(shared), awaited: () => [], setAside: createSetAside(shared) }
    const cut = new AbortController().signal
    try {
      return await work({ ...shared, ...claims, fetchResult: fetcher, onProcessed: () => {}, cut }, interrupted)
    } finally {
      while ((await pollLog.runOnce()).more);
    }
  })
}

async function readSettings(env: ProcessEnvironment, databaseUrl: string): Promise<ReceiverSettings> {
  const given = env['GENERATION_KEYS'] || env['GENERATION_KEYS_FILE']
  const keys = given ? undefined : (await readLocalSecrets(env)).defaults.keys
  const local = withSetting(laptopEnvironment(env, programs), 'DATABASE_URL', databaseUrl)
  const { receiver } = readConfig(local, ['receiver'], { databaseUrl, keys, secretKey: undefined })
  if (!receiver) throw new Error('the settings of the receiver are missing')
  return receiver
}
