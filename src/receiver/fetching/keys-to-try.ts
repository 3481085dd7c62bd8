import type { Environment } from '../domain/environment.ts'
import { isUsable, type GenerationKey, type Keys } from '../domain/keys.ts'
import { storedName } from '../domain/source.ts'
import type { Purpose } from './call-budget.ts'

/*
 * The keys that a poll tries, one after the other, until one gives an answer about the request (createFetcher()). Keys
 * of other sources are never among them.
 *
 *   step                key                                             reason
 *   named               the key that tracked the request, or signed     the request is its own
 *                       its webhook
 *   stand_in            the key that last read a request of the named   both are of one account, and the named key may
 *                       key                                             be retired or have no call left
 *   same_environment    others of the request's environment             no key is named, or the named one is wrong
 *   other_environment   others of the other environment                 the named key may be forged
 *
 * The last two steps share three keys in each poll, since each try is a call of up to 10 s. At least two are of the
 * request's environment, as far as there are, since those of the other one may not be tried alone. The next poll takes
 * the next keys of each step. A poll that may find the request lost takes all.
 */

const steps = ['named', 'stand_in', 'same_environment', 'other_environment'] as const

export type Step = (typeof steps)[number]

export type KeyToTry = { key: GenerationKey; step: Step; purpose: Purpose }

/** The facts of a request that decide which keys are tried. */
export type KeyFacts = {
  /** The source of the request: see storedName(). Only its keys are tried. */
  sourceName: string | null
  /** The key with which the request was tracked, or its webhook signed. */
  keyName: string | undefined
  /** The environment of the request, if it is known although the key is not. */
  environment?: Environment | undefined
  purpose: Exclude<Purpose, 'submitting'>
  /** The number of the poll. It selects which of the other keys are tried. */
  pollNumber?: number
  /** All other keys are tried: if none knows the request, it is lost. */
  mayBeLost?: boolean
}

/** Returns the keys to try, step by step. `standIn` is the name of the stand-in. */
export function keysToTry(keys: Keys, facts: KeyFacts, standIn: string | undefined): KeyToTry[] {
  const { sourceName, keyName, purpose, pollNumber = 0, mayBeLost = false } = facts
  const named = keyName === undefined ? undefined : keys.byName.get(keyName)
  const environment = named?.environment ?? facts.environment
  const stepOf = (key: GenerationKey): Step => {
    if (key.name === keyName) return 'named'
    if (environment !== undefined && key.environment !== environment) return 'other_environment'
    // Only of the same environment: a sandbox key can sign any id, and must not use up a live key's calls.
    return key.name === standIn ? 'stand_in' : 'same_environment'
  }
  // Without a named key, the request is attributed to no key, so any key may complete it.
  const ofOthers = keyName === undefined ? purpose : 'trial'
  const purposes: Record<Step, Purpose> = {
    named: purpose,
    // A key of unknown environment may have leaked its secret, so it gets only a tenth of another key's calls.
    stand_in: environment === undefined ? 'trial' : purpose,
    same_environment: ofOthers,
    other_environment: ofOthers,
  }
  const usable = keys.all
    .filter((key) => isUsable(key) && storedName(key.source) === sourceName)
    .map((key) => ({ key, step: stepOf(key), purpose: purposes[stepOf(key)] }))
  const isNamedOrStandIn = ({ step }: KeyToTry) => step === 'named' || step === 'stand_in'
  const others = usable.filter((one) => !isNamedOrStandIn(one))
  const ofPoll = mayBeLost ? others : othersOfPoll(others, pollNumber)
  return [...usable.filter(isNamedOrStandIn), ...ofPoll].toSorted(
    (one, other) => steps.indexOf(one.step) - steps.indexOf(other.step),
  )
}

const othersPerPoll = 3

function othersOfPoll(others: readonly KeyToTry[], pollNumber: number): readonly KeyToTry[] {
  if (others.length <= othersPerPoll) return others
  const ofOther = others.filter(({ step }) => step === 'other_environment')
  const ofSame = others.filter(({ step }) => step === 'same_environment')
  const same = nextOf(ofSame, pollNumber, ofOther.length === 0 ? othersPerPoll : othersPerPoll - 1)
  return [...same, ...nextOf(ofOther, pollNumber, othersPerPoll - same.length)]
}

function nextOf(keys: readonly KeyToTry[], pollNumber: number, count: number): readonly KeyToTry[] {
  const start = (pollNumber * count) % keys.length
  return [...keys.slice(start), ...keys.slice(0, start)].slice(0, count)
}

/**
 * Remembers for each named key the key that last read one of its requests, in this process. Both are then of one
 * account.
 */
export function createStandIns() {
  const standIns = new Map<string, string>()
  return {
    of: (keyName: string | undefined) => (keyName === undefined ? undefined : standIns.get(keyName)),
    /** Notes the answer of a key about a request of the named key. */
    note: (named: string | undefined, { key, step }: Pick<KeyToTry, 'key' | 'step'>, answer: string): void => {
      if (named === undefined || (step !== 'stand_in' && step !== 'same_environment')) return
      if (answer === 'result' || answer === 'running') {
        // Services may track under any name, so the map is bounded. Later polls record them again.
        if (standIns.size >= 1000) standIns.clear()
        standIns.set(named, key.name)
      }
      if (answer === 'not_found' && standIns.get(named) === key.name) standIns.delete(named)
    },
  }
}
