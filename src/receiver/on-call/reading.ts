import type { FailingRole } from '../../platform/loop.ts'
import type { GuessLimit } from '../../platform/pages/guess-limit.ts'
import type { Keys } from '../domain/keys.ts'
import type { ReceiverSettings } from '../settings.ts'

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
}

/** What the readers of the on-call go by: the clock, the settings, and what this process knows of itself. */
export function readingOptions({ settings, background, keys, clock, startedAt }: Known) {
  const { stuckAfterSeconds, fetchRatePerMinute } = settings
  return {
    now: clock(),
    stuckAfterSeconds,
    fetchRatePerMinute,
    silentAfterSeconds: background.silentAfterSeconds,
    failingRoles: background.failingRoles(),
    startedAt,
    keys: keys(),
    limited: background.guesses.limited(),
    archives: settings.mediaArchive !== undefined,
  }
}
