import { createPool } from '../platform/postgres/postgres.ts'
import type { ReceiverSettings } from './settings.ts'

/** Every sender is answered within this time (accept.ts), so the server ends a longer statement. */
const acceptStatementSeconds = 5

/**
 * Acknowledging, landing and (in a pool of 8 or more) polling have separate connections, so none of them waits for a
 * page or for another. They run few statements, by indexes alone, so their plans are kept.
 */
export function openPools({ databaseUrl: url, databaseReadUrl, databasePoolSize }: ReceiverSettings) {
  const share = sharesOf(databasePoolSize)
  const accept = createPool({
    url,
    max: share.accept,
    keepsPlans: true,
    statementSeconds: acceptStatementSeconds,
    silenceSeconds: acceptStatementSeconds + 1,
  })
  const landing = createPool({ url, max: share.landing, keepsPlans: true })
  const polls = share.polls === 0 ? landing : createPool({ url, max: share.polls, keepsPlans: true })
  const others = createPool({ url, max: share.others })
  const standby = databaseReadUrl === undefined ? undefined : createPool({ url: databaseReadUrl, max: share.others })
  return {
    accept,
    landing,
    /** For polls: their claims, calls and landings. A pool of fewer than 8 shares the connections of landing. */
    polls,
    others,
    /** The connections to a standby that serves lists, if one is configured. */
    standby,
    close: async () => {
      const all = new Set([accept, landing, polls, others, ...(standby === undefined ? [] : [standby])])
      await Promise.all([...all].map((pool) => pool.close()))
    },
  }
}

/**
 * Divides the connections. `poolSize` is at least 3. Landing has at most three, since createBatches() in
 * landing/batches.ts writes at most three batches at a time.
 */
function sharesOf(poolSize: number) {
  const accept = poolSize < 5 ? 1 : 2
  const landing = poolSize < 5 ? 1 : poolSize < 8 ? 2 : 3
  const polls = poolSize < 8 ? 0 : poolSize < 10 ? 1 : 2
  return { accept, landing, polls, others: poolSize - accept - landing - polls }
}
