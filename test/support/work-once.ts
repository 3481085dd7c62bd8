import type { HandOver } from '../../src/receiver/domain/delivery.ts'
import { createHandOver } from '../../src/receiver/landing/hand-over.ts'
import type { LandingDeps } from '../../src/receiver/landing/landing-deps.ts'
import { aroundStatements } from './statements.ts'

/** No room in this process: each delivery is stored without a claim. */
export const noRoom: HandOver = {
  leaseSeconds: 0,
  reserve: () => undefined,
}

/** The same hand-over in a process that freezes between the commit and the landing, until it wakes up. */
export function freezing(handOver: HandOver) {
  const ready: (() => void)[] = []
  const reserve: HandOver['reserve'] = (delivery) => {
    const reservation = handOver.reserve(delivery)
    return reservation && { ...reservation, makeReady: () => void ready.push(reservation.makeReady) }
  }
  return { handOver: { ...handOver, reserve }, wakeUp: () => ready.forEach((makeReady) => makeReady()) }
}

/** The deliveries of a round. The failed ones are retried, put off or parked. */
export type Round = { claimed: number; parked: number; landed: number; failed: number }

/** A hand-over that no loop drives. Its leases go by the clock of the test. */
export function testHandOver(deps: LandingDeps & { clock: () => Date }) {
  return createHandOver({
    ...deps,
    giveWay: async () => {},
    wakeInbox: () => {},
    isPrepared: () => true,
    signal: new AbortController().signal,
    nowMs: () => deps.clock().getTime(),
  })
}

/** One round of claiming and all that comes of it. Throws the error of a batch that failed as a whole. */
export async function workOnce(deps: LandingDeps & { clock: () => Date }): Promise<Round> {
  let claimed = 0
  let landed = 0
  let parked = 0
  const errors: unknown[] = []
  const handOver = testHandOver({
    ...deps,
    db: aroundStatements(deps.db, async (run, text) => {
      const answer = await run()
      if (text.includes('from claimed join weighed') && Array.isArray(answer)) claimed += answer.length
      return answer
    }),
    logger: Object.assign(Object.create(deps.logger), {
      info: (fields: { outcome?: string }, message: string) => {
        if (fields.outcome === 'parked') parked += 1
        deps.logger.info(fields, message)
      },
      error: (fields: { err?: unknown }, message: string) => {
        if (message === 'a batch could not be landed and is returned to the inbox') errors.push(fields.err)
        deps.logger.error(fields, message)
      },
    }),
    onProcessed: (processed) => {
      landed += 1
      deps.onProcessed(processed)
    },
  })
  await handOver.claimSome()
  await handOver.idle()
  if (errors.length > 0) throw errors[0]
  return { claimed, parked, landed, failed: claimed - parked - landed }
}
