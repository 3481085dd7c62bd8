import { createPool, type Pool } from '../platform/postgres/postgres.ts'
import type { ReceiverSettings } from './settings.ts'

/** Whoever waits for it has had its answer by then: the server ends it, or the connection is cut. */
const acceptStatementSeconds = 5

export type ReceiverPools = {
  accept: Pool
  landing: Pool
  others: Pool
  /** To a standby that lists are read from, where one is set. */
  standby: Pool | undefined
  close: () => Promise<void>
}

/** Acknowledging and landing have connections of their own: no page can make them wait, nor the one the other. */
export function openPools({ databaseUrl: url, databaseReadUrl, databasePoolSize }: ReceiverSettings): ReceiverPools {
  const share = sharesOf(databasePoolSize)
  const accept = createPool({
    url,
    max: share.accept,
    keepsPlans: true,
    statementSeconds: acceptStatementSeconds,
    silenceSeconds: acceptStatementSeconds + 1,
  })
  const landing = createPool({ url, max: share.landing, keepsPlans: true })
  const others = createPool({ url, max: share.others })
  const standby = databaseReadUrl === undefined ? undefined : createPool({ url: databaseReadUrl, max: share.others })
  return {
    accept,
    landing,
    others,
    standby,
    close: async () => {
      await Promise.all(
        [accept, landing, others, ...(standby === undefined ? [] : [standby])].map((pool) => pool.close()),
      )
    },
  }
}

/** Of three connections each has one. */
function sharesOf(poolSize: number): { accept: number; landing: number; others: number } {
  const accept = poolSize < 5 ? 1 : 2
  const landing = poolSize < 5 ? 1 : poolSize < 8 ? 2 : 3
  return { accept, landing, others: poolSize - accept - landing }
}
