import type { Grant, Purpose } from './call-budget.ts'

type Refused = Extract<Grant, { ok: false }>

/** A key may get calls again before its time, by another process or a clock that was put back: it is asked again this often. */
const maxMemoryMs = 5000

export type SpentKeys = {
  /** Why there is no call with this key for this purpose now, if that is known. */
  find: (keyName: string, purpose: Purpose, now: Date) => Refused | undefined
  remember: (keyName: string, purpose: Purpose, refused: Refused, now: Date) => void
  /** The key was answered: nothing that is remembered of it holds any more. */
  forget: (keyName: string) => void
}

/** The keys that gave no call. A flood of pictures does not ask Postgres once for each, only to be refused. */
export function createSpentKeys(): SpentKeys {
  const refusals = new Map<string, Map<Purpose, Refused & { until: number }>>()
  return {
    find: (keyName, purpose, now) => {
      const refused = refusals.get(keyName)?.get(purpose)
      const leftMs = (refused?.until ?? 0) - now.getTime()
      return leftMs <= 0 || leftMs > maxMemoryMs ? undefined : refused
    },
    remember: (keyName, purpose, refused, now) => {
      const of = refusals.get(keyName) ?? new Map()
      refusals.set(
        keyName,
        of.set(purpose, { ...refused, until: Math.min(refused.retryAt.getTime(), now.getTime() + maxMemoryMs) }),
      )
    },
    forget: (keyName) => refusals.delete(keyName),
  }
}
