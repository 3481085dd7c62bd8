import { isProduction, programs, readConfig } from '../config/config.ts'
import { laptopEnvironment, readLocalSecrets } from '../laptop/local.ts'
import { createFetcher } from '../receiver/fetching/fetcher.ts'
import { createPollLog } from '../receiver/fetching/poll-log.ts'
import { createProviderClient } from '../receiver/fetching/provider-client.ts'
import { createReceiverMetrics } from '../receiver/metrics.ts'
import type { ReconcilerDeps } from '../receiver/reconciling/reconciler.ts'
import { createLogger } from '../runtime/logger.ts'
import { createRegistry } from '../runtime/metrics.ts'
import { withSetting, type ProcessEnvironment } from '../runtime/settings.ts'
import { withDatabase } from './database.ts'
import { withPool } from './listing.ts'

/**
 * Gives `work` what the receiver processes with, from the same settings: the
 * command line lands and polls by the same functions and in the same budget.
 * Ctrl-C asks it to stop after what is in progress.
 */
export async function withProcessing<T>(
  env: ProcessEnvironment,
  work: (deps: ReconcilerDeps, interrupted: AbortSignal) => Promise<T>,
): Promise<T> {
  const interruption = new AbortController()
  const interrupt = () => interruption.abort()
  process.once('SIGINT', interrupt)
  try {
    return await withDatabase(env, 'receiver', async (databaseUrl) => {
      const settings = await readSettings(env, databaseUrl)
      return withPool(databaseUrl, async (db) => {
        const clock = () => new Date()
        const logger = createLogger('silent')
        const keys = () => settings.keys
        const { fetchRatePerMinute, stuckAfterSeconds, mediaHosts, generationApiUrl: baseUrl } = settings
        const metrics = createReceiverMetrics({
          registry: createRegistry({ processDefaults: false }),
          db,
          clock,
          fetchRatePerMinute,
          stuckAfterSeconds,
          logger,
        })
        const client = createProviderClient({ baseUrl, fetch, clock })
        const pollLog = createPollLog({ db, dropped: metrics.pollsDropped, wake: () => {} })
        const fetcher = createFetcher({
          db,
          client,
          keys,
          fetchRatePerMinute,
          clock,
          logger,
          calls: metrics.providerCalls,
          onPolled: pollLog.record,
        })
        const shared = { db, keys, mediaHosts, clock, logger, fetchRatePerMinute, stuckAfterSeconds }
        try {
          return await work({ ...shared, fetch: fetcher, onLanded: () => {}, cut: new AbortController().signal }, interruption.signal)
        } finally {
          while ((await pollLog.runOnce()).more);
        }
      })
    })
  } finally {
    process.off('SIGINT', interrupt)
  }
}

async function readSettings(env: ProcessEnvironment, databaseUrl: string) {
  const given = env['GENERATION_KEYS'] || env['GENERATION_KEYS_FILE'] || isProduction(env)
  const keys = given ? undefined : (await readLocalSecrets()).defaults.keys
  const { receiver } = readConfig(withSetting(laptopEnvironment(env, programs), 'DATABASE_URL', databaseUrl), ['receiver'], {
    databaseUrl,
    keys,
    secretKey: undefined,
  })
  if (!receiver) throw new Error('no settings of the receiver')
  return receiver
}
