import type { FailingRole } from '../../platform/loop.ts'
import type { GuessLimit } from '../../platform/pages/guess-limit.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { Keys } from '../domain/keys.ts'
import type { Problem } from '../domain/problem.ts'
import type { ReceiverSettings } from '../settings.ts'
import type { Slice } from '../slice.ts'

type Known = {
  settings: Pick<ReceiverSettings, 'stuckAfterSeconds' | 'fetchRatePerMinute' | 'mediaArchive'>
  background: {
    silentAfterSeconds: number | undefined
    guesses: GuessLimit
    failingRoles: () => readonly FailingRole[]
  }
  keys: () => Keys
  clock: () => Date
  startedAt: Date
  slices: readonly Slice[]
}

/** What the readers of the on-call go by: the clock, the settings, and what this process knows of itself. */
export function readingOptions({ settings, background, keys, clock, startedAt, slices }: Known) {
  const { stuckAfterSeconds, fetchRatePerMinute } = settings
  const now = clock()
  return {
    now,
    stuckAfterSeconds,
    fetchRatePerMinute,
    silentAfterSeconds: background.silentAfterSeconds,
    failingRoles: background.failingRoles(),
    startedAt,
    keys: keys(),
    limited: background.guesses.limited(),
    readSlices: (tx: Executor) => sliceProblems(tx, slices, { settings, now }),
  }
}

/** Returns what is wrong with the slices, in their order. */
export async function sliceProblems(
  tx: Executor,
  slices: readonly Slice[],
  at: Parameters<Slice['problems']>[1],
): Promise<Problem[]> {
  const problems: Problem[] = []
  for (const slice of slices) problems.push(...(await slice.problems(tx, at)))
  return problems
}
