import { createLogger, type Logger } from '../logger.ts'
import { sql } from './drizzle.ts'
import { one } from './errors.ts'
import type { Database } from './postgres.ts'

/** Hosts whose time is kept are far closer together, and whatever is shared bears with this much. */
const toleranceMs = 1000
/** An answer that took longer tells too little. */
const maxAskingMs = 1000
/** Between two rounds: what the two clocks of a host drift apart in that time is far below the tolerance. */
export const comparedMs = 10_000
/** A change that is worth a line in the log. */
const worthALineMs = 5000

export type SharedClock = {
  now: () => Date
  /** The first round, before anything goes by it; one that fails leaves it to the next. */
  begin: () => Promise<void>
  /** One round: asks Postgres for its time. */
  compare: () => Promise<{ more: false }>
}

export type SharedClockDeps = { db: Database; logger: Logger; hostNow: () => Date }

/**
 * The one time of all who share a database. Due times, leases and budgets are written by one replica and read
 * by another: where each went by its own host, one whose clock is an hour ahead would take what is leased, and put off
 * for an hour what all should try now. So it is the host's time while that agrees with Postgres's, and otherwise what
 * Postgres told when it was last asked, and what has passed since then; that a clock is set makes no difference to it.
 */
export function createSharedClock({ db, logger, hostNow }: SharedClockDeps): SharedClock {
  let told: { ms: number; at: number } | undefined
  let saidAheadMs = 0

  const now = () => {
    const host = hostNow()
    if (told === undefined) return host
    const shared = told.ms + performance.now() - told.at
    return Math.abs(host.getTime() - shared) <= toleranceMs ? host : new Date(shared)
  }

  const compare = async () => {
    const asked = performance.now()
    const rows = await db.execute<{ theirs: string }>(sql`select clock_timestamp() as theirs`)
    const answered = performance.now()
    if (answered - asked <= maxAskingMs) {
      const { theirs } = one(rows, 'asking Postgres for its time')
      told = { ms: new Date(theirs).getTime(), at: (asked + answered) / 2 }
      const aheadMs = hostNow().getTime() - (told.ms + performance.now() - told.at)
      say(Math.abs(aheadMs) <= toleranceMs ? 0 : aheadMs)
    }
    return { more: false } as const
  }

  const say = (aheadMs: number) => {
    if (Math.abs(aheadMs - saidAheadMs) <= worthALineMs) return
    saidAheadMs = aheadMs
    if (aheadMs === 0) return logger.info('the clocks of this host and of Postgres agree again')
    logger.warn(
      { ahead_seconds: Math.round(aheadMs / 1000) },
      `this host's clock is ${aheadMs > 0 ? 'ahead of' : 'behind'} that of Postgres: what replicas share goes by Postgres, and signatures by this host; correct the clock`,
    )
  }

  const begin = async () => {
    await compare().catch((error: unknown) =>
      logger.warn({ err: error }, 'Postgres did not tell its time: it goes by this host until it does'),
    )
  }

  return { now, begin, compare }
}

/** For a command, which is over before clocks are set. */
export async function askSharedTime(db: Database): Promise<() => Date> {
  const clock = createSharedClock({ db, logger: createLogger('silent'), hostNow: () => new Date() })
  await clock.begin()
  return clock.now
}
