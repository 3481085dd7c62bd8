import type { FailingRole } from '../../platform/loop.ts'
import type { Limited } from '../../platform/pages/guess-limit.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { Problem } from '../domain/problem.ts'
import { readBalances } from '../gauges/balances.ts'
import { inboxDepth } from '../gauges/inbox-depth.ts'
import { readNotifyQueue } from '../gauges/notify-queue.ts'
import { countOverdue, readOverduePolls } from '../gauges/overdue.ts'
import { unsequencedSeconds } from '../gauges/unsequenced.ts'
import { readParkedCauses } from '../queries/causes.ts'
import { listGiveUps, type GiveUp, readRefusals, type Refusals } from '../queries/give-ups.ts'
import { lastOutageEnd } from '../queries/issues.ts'
import { readKeys } from '../queries/keys.ts'
import { readReconciler, type ReconcilerOptions } from '../queries/reconciler.ts'
import { readRecent, type Recent } from '../queries/stats.ts'
import {
  readContradictions,
  readFailingSources,
  readForeignMedia,
  readStuckSubmits,
  readWebhooksSeen,
} from '../queries/trouble.ts'
import { readWaitingSubmits } from '../submitting/generations.ts'
import { readRefusedSubmits } from '../submitting/refusals.ts'

export type ProblemsOptions = ReconcilerOptions & {
  webhookPublicUrl: string
  generationApiUrl: string
  mediaHosts?: readonly string[] | undefined
  readSlices?: ((tx: Executor) => Promise<Problem[]>) | undefined
  /** The addresses whose wrong tokens this process answers with 429. */
  limited?: readonly Limited[]
  failingRoles?: readonly FailingRole[]
}

export type Failing = {
  outcome: 'refused' | 'unavailable'
  reason: string | null
  arrivals: number
  /** True for unavailable ones, and for refused ones that the provider may have sent (Refusals). */
  vouched: boolean
}

export type Numbers = Awaited<ReturnType<typeof readNumbers>>

/** Reads the numbers behind problems, and recent arrivals by outcome, in the transaction of another read. */
export async function readNumbers(tx: Executor, options: ProblemsOptions) {
  const { now } = options
  const recent = await readRecent(tx, now)
  const giveUps = await listGiveUps(tx, now)
  const from = new Date(now.getTime() - (recent.minutes + 1) * 60_000)
  const refusals = await readRefusals(tx, from)
  return {
    ...options,
    recent,
    ...failedArrivals(recent, refusals, (one) => isOver(one, giveUps, from)),
    giveUps,
    outageEndedAt: await lastOutageEnd(tx),
    inbox: await inboxDepth(tx, now),
    parked: await readParkedCauses(tx, new Date(now.getTime() - 3_600_000)),
    /** How long the oldest change has waited for its position in the feed; 0 while none waits. */
    unsequencedSeconds: await unsequencedSeconds(tx, now),
    notifyQueue: await readNotifyQueue(tx),
    overdue: await countOverdue(tx, options),
    overduePolls: await readOverduePolls(tx, options),
    reconciler: await readReconciler(tx, options),
    keys: await readKeys(tx, options),
    balances: await readBalances(tx, now),
    refusedSubmits: await readRefusedSubmits(tx, now),
    failingSources: await readFailingSources(tx, options),
    contradictions: await readContradictions(tx, now),
    webhooks: await readWebhooksSeen(tx, now),
    foreignMedia: await readForeignMedia(tx, options),
    /** Submits without a final answer of the provider, counted up to `maxCounted`. */
    waitingSubmits: (await readWaitingSubmits(tx, now))?.submits ?? 0,
    stuckSubmits: await readStuckSubmits(tx, now),
    ofSlices: (await options.readSlices?.(tx)) ?? [],
  }
}

/** Splits recent failed arrivals into those that the provider may have sent, by cause, and the number of others. */
function failedArrivals({ by_outcome }: Recent, { provided, kept }: Refusals, isOver: (of: Failing) => boolean) {
  const isAlone = by_outcome.every(({ outcome }) => outcome === 'refused' || outcome === 'unavailable')
  const failing: Failing[] = []
  let foreign = 0
  for (const { outcome, reason, arrivals } of by_outcome) {
    if (outcome !== 'refused' && outcome !== 'unavailable') continue
    const own = outcome === 'unavailable' ? arrivals : Math.ceil(arrivals * (provided.get(reason) ?? 0))
    // While nothing authentic arrives, arrivals that no secret matches may be from the provider.
    const isFirstKey = isAlone && reason === 'no_matching_secret'
    if (!isFirstKey) foreign += arrivals - own
    const vouched = own > 0
    const one: Failing = { outcome, reason, vouched, arrivals: vouched ? own : arrivals }
    if (vouched ? !isOver(one) : isFirstKey && kept.has(reason)) failing.push(one)
  }
  return { failing, strangers: foreign }
}

/** True if arrivals failed for lack of a secret or of Postgres, and all of them were accepted since. */
function isOver({ outcome, reason }: Failing, failed: readonly GiveUp[], from: Date): boolean {
  // `failed` does not list every failure of these kinds, so a missing one proves nothing.
  if (outcome === 'refused' ? reason !== 'no_matching_secret' : reason === 'too_much_being_received') return false
  return !failed.some(
    (one) => one.outcome === outcome && one.reason === reason && Date.parse(one.last_seen) >= from.getTime(),
  )
}
