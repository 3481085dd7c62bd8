import type { FailingRole } from '../../platform/loop.ts'
import type { Limited } from '../../platform/pages/guess-limit.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { Problem } from '../domain/problem.ts'
import { readNotifyQueue } from '../feeding/notify-queue.ts'
import { unsequencedSeconds } from '../feeding/sequencer.ts'
import { readBalances } from '../fetching/balances.ts'
import { depth } from '../landing/inbox.ts'
import { readParkedCauses } from '../queries/causes.ts'
import { listGiveUps, type GiveUp } from '../queries/give-ups.ts'
import { readKeys, type KeysOptions } from '../queries/keys.ts'
import { readRecent, type Recent } from '../queries/recent.ts'
import { readReconciler, type ReconcilerOptions } from '../queries/reconciler.ts'
import { readRefusals, type Refusals } from '../queries/refusals.ts'
import { readContradictions, readFailingSources, readWebhooksSeen } from '../queries/trouble.ts'
import { countOverdue, readOverduePolls } from '../reconciling/due.ts'
import { countWaitingSubmits } from '../submitting/generations.ts'
import { readRefusedSubmits } from '../submitting/refusals.ts'

export type ProblemsOptions = ReconcilerOptions &
  KeysOptions & {
    /** The address that the provider posts to. */
    webhookPublicUrl: string
    generationApiUrl: string
    /** Reads the problems of the slices in the same transaction. */
    readSlices?: ((tx: Executor) => Promise<Problem[]>) | undefined
    /** The addresses whose wrong tokens this process answers with 429. */
    limited?: readonly Limited[]
    /** The failing roles of this process. Issues include those of other processes. */
    failingRoles?: readonly FailingRole[]
  }

/** Arrivals of one outcome and reason in the last minutes. */
export type Failing = {
  outcome: 'refused' | 'unavailable'
  reason: string | null
  arrivals: number
  /** True for unavailable ones, and for refused ones that the provider may have sent (Refusals). */
  vouched: boolean
}

export type Numbers = Awaited<ReturnType<typeof readNumbers>>['numbers']

/** Reads the numbers behind problems, and recent arrivals by outcome, in the transaction of another read. */
export async function readNumbers(tx: Executor, options: ProblemsOptions) {
  const { now, stuckAfterSeconds } = options
  const recent = await readRecent(tx, now)
  const failed = await listGiveUps(tx, now)
  const from = new Date(now.getTime() - (recent.minutes + 1) * 60_000)
  const refusals = await readRefusals(tx, from)
  const failing = failingOf(recent, refusals).filter(
    (one) => !(one.vouched ? isOver(one, failed, from) : refusals.kept.get(one.reason) === undefined),
  )
  const numbers = {
    now,
    recent: { minutes: recent.minutes, arrivals: recent.arrivals, ackP95Ms: recent.ack_p95_ms, failing },
    inbox: await depth(tx, now),
    /** The causes of deliveries parked in the last hour. */
    parked: await readParkedCauses(tx, new Date(now.getTime() - 3_600_000)),
    /** How long the oldest change has waited for its position in the feed; 0 while none waits. */
    unsequencedSeconds: await unsequencedSeconds(tx, now),
    notifyQueue: await readNotifyQueue(tx),
    failingRoles: options.failingRoles ?? [],
    overdue: await countOverdue(tx, { now, stuckAfterSeconds }),
    overduePolls: await readOverduePolls(tx, { now, stuckAfterSeconds }),
    reconciler: await readReconciler(tx, options),
    keys: await readKeys(tx, options),
    balances: await readBalances(tx, now),
    refusedSubmits: await readRefusedSubmits(tx, now),
    giveUps: failed,
    strangers: strangersOf(recent, refusals),
    failingSources: await readFailingSources(tx, options),
    contradictions: await readContradictions(tx, now),
    webhooks: await readWebhooksSeen(tx, now),
    /** Submits without a final answer of the provider, counted up to `maxCounted`. */
    waitingSubmits: await countWaitingSubmits(tx),
    fetchRatePerMinute: options.fetchRatePerMinute,
    webhookPublicUrl: options.webhookPublicUrl,
    generationApiUrl: options.generationApiUrl,
    limited: options.limited,
    ofSlices: (await options.readSlices?.(tx)) ?? [],
  }
  return { numbers, recent }
}

function failingOf({ by_outcome }: Recent, refusals: Refusals): Failing[] {
  const alone = nothingElseCame(by_outcome)
  return by_outcome.flatMap(({ outcome, reason, arrivals }) => {
    if (outcome !== 'refused' && outcome !== 'unavailable') return []
    const vouchedFor = outcome === 'unavailable' ? arrivals : Math.ceil(arrivals * (refusals.provided.get(reason) ?? 0))
    const vouched = vouchedFor > 0
    if (!vouched && !isFirstKey(reason, alone)) return []
    return [{ outcome, reason, vouched, arrivals: vouched ? vouchedFor : arrivals }]
  })
}

/** While nothing authentic arrives, arrivals that no secret matches may be from the provider. */
function isFirstKey(reason: string | null, alone: boolean): boolean {
  return alone && reason === 'no_matching_secret'
}

function nothingElseCame(by_outcome: Recent['by_outcome']): boolean {
  return by_outcome.every(({ outcome }) => outcome === 'refused' || outcome === 'unavailable')
}

function strangersOf({ by_outcome }: Recent, { provided, strangers }: Refusals) {
  const alone = nothingElseCame(by_outcome)
  const unknown = by_outcome.filter(({ outcome, reason }) => outcome === 'refused' && !isFirstKey(reason, alone))
  const arrivals = unknown.reduce(
    (sum, { reason, arrivals }) => sum + arrivals - Math.ceil(arrivals * (provided.get(reason) ?? 0)),
    0,
  )
  return { ...strangers, arrivals }
}

/** True if arrivals failed for lack of a secret or of Postgres, and all of them were accepted since. */
function isOver({ outcome, reason }: Failing, failed: readonly GiveUp[], from: Date): boolean {
  // `failed` does not list every failure of these kinds, so a missing one proves nothing.
  if (outcome === 'refused' ? reason !== 'no_matching_secret' : reason === 'too_much_being_received') return false
  return !failed.some(
    (one) => one.outcome === outcome && one.reason === reason && Date.parse(one.last_seen) >= from.getTime(),
  )
}
