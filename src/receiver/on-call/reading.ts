import type { FailingRole } from '../../platform/loop.ts'
import type { GuessLimit } from '../../platform/pages/guess-limit.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { readTime, type SharedTime } from '../../platform/postgres/time.ts'
import type { Keys } from '../domain/keys.ts'
import type { Problem } from '../domain/problem.ts'
import { readWithin } from '../queries/deadline.ts'
import type { ReceiverSettings } from '../settings.ts'
import type { Slice } from '../slice.ts'

export type ReadingDeps = {
  settings: ReceiverSettings
  background: {
    silentAfterSeconds: number | undefined
    guesses: GuessLimit
    failingRoles: () => readonly FailingRole[]
  }
  keys: () => Keys
  db: Database
  time: SharedTime
  startedAt: Date
  slices: readonly Slice[]
}

/** The options of the on-call readers: Postgres's time, the settings and the state of this process. */
export async function readingOptions({ settings, background, keys, db, time, startedAt, slices }: ReadingDeps) {
  const now = await readWithin(db, (tx) => readTime(tx, time))
  return {
    ...settings,
    now,
    silentAfterSeconds: background.silentAfterSeconds,
    failingRoles: background.failingRoles(),
    startedAt,
    keys: keys(),
    limited: background.guesses.limited(),
    readSlices: (tx: Executor) => sliceProblems(tx, slices, { settings, now }),
  }
}

/** Returns the problems of all slices, in the order of the slices. */
export async function sliceProblems(
  tx: Executor,
  slices: readonly Slice[],
  at: Parameters<Slice['problems']>[1],
): Promise<Problem[]> {
  const problems: Problem[] = []
  for (const slice of slices) problems.push(...(await slice.problems(tx, at)))
  return problems
}
