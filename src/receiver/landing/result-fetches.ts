import type { Logger } from '../../platform/logger.ts'
import type { Notification } from '../../wire/schemas.ts'
import type { Fetched } from '../fetching/fetcher.ts'
import { callDeadlineMs } from '../fetching/provider-client.ts'
import { fetchFor, landingOfAnswer, landingOfWebhook, type PreparingDeps } from './preparing.ts'
import type { HeldDelivery, Ready } from './worker.ts'

export type Understood = { claimed: HeldDelivery; notification: Notification }

/** Lands one with the next batch; `end` is called with whether that was written. */
export type LandLater = (ready: Ready, end?: (written: boolean) => void) => void

export type ResultFetchesDeps = PreparingDeps & {
  logger: Logger
  /** Gets each delivery once, and what came later for it. */
  land: LandLater
  /** Whether landing has more to do than it can: then nothing more is to be asked for first. */
  isBehind: () => boolean
  /** Whether what waits weighs so much that no more answers may come to it. */
  isFull: () => boolean
  /** What an answer may take before readers are told what the webhook carried. */
  patienceMs: number
  /** No result that comes later is written after this. */
  signal: AbortSignal
}

export type ResultFetches = {
  add: (one: Understood) => void
  /** Settles when no call is open. */
  idle: () => Promise<void>
}

/** Calls to the provider side by side. */
const maxCalls = 16
/** Of a key: more could not be asked for in the time that they may wait. */
const maxInLine = 64

type Asking = Understood & { isInLine: boolean; late: PromiseWithResolvers<undefined>; timer?: NodeJS.Timeout }

/**
 * Fetches the results of deliveries whose webhooks carry less, of each key in
 * turn, each on its own: one call that hangs holds up no other. What has waited
 * too long for its answer, or for a place, lands with what its webhook carried;
 * an answer that comes after that completes it.
 */
export function createResultFetches(deps: ResultFetchesDeps): ResultFetches {
  const lines = new Map<string, Asking[]>()
  const calls = new Set<Promise<void>>()

  const add = (one: Understood) => {
    const line = lines.get(one.claimed.keyName) ?? []
    if (line.length >= maxInLine || deps.isBehind()) return landWithout(one)
    const asking: Asking = { ...one, isInLine: true, late: Promise.withResolvers() }
    lines.set(one.claimed.keyName, [...line, asking])
    asking.timer = setTimeout(() => {
      asking.late.resolve(undefined)
      if (asking.isInLine) leaveLine(asking)
    }, deps.patienceMs)
    // After all that come with it: then their keys take turns from the first call on.
    return queueMicrotask(start)
  }

  const start = () => {
    while (calls.size < maxCalls) {
      const asking = next()
      if (!asking) return
      asking.isInLine = false
      if (deps.isFull()) {
        clearTimeout(asking.timer)
        landWithout(asking)
        continue
      }
      const call: Promise<void> = ask(deps, asking)
        .catch((error: unknown) =>
          deps.logger.error({ err: error, request_id: asking.notification.request_id }, 'a result was not completed'),
        )
        .finally(() => {
          calls.delete(call)
          start()
        })
      calls.add(call)
    }
  }

  /** The first of the key whose turn it is; the key goes to the end. */
  const next = (): Asking | undefined => {
    for (const [keyName, [first, ...rest]] of lines) {
      lines.delete(keyName)
      if (rest.length > 0) lines.set(keyName, rest)
      if (first) return first
    }
    return undefined
  }

  const leaveLine = (asking: Asking) => {
    const { keyName } = asking.claimed
    const rest = (lines.get(keyName) ?? []).filter((other) => other !== asking)
    if (rest.length > 0) lines.set(keyName, rest)
    else lines.delete(keyName)
    landWithout(asking)
  }

  const landWithout = ({ claimed, notification }: Understood) => {
    deps.land({ claimed, landing: landingOfWebhook(deps, claimed, notification) })
  }

  const idle = async () => {
    while (calls.size > 0) await Promise.all(calls)
  }
  return { add, idle }
}

/** Lands one by its answer, or first without it and then by it. */
async function ask(deps: ResultFetchesDeps, { claimed, notification, late, timer }: Asking): Promise<void> {
  const call = answerOf(deps, { claimed, notification })
  const inTime = await Promise.race([call, late.promise])
  if (inTime) {
    clearTimeout(timer)
    const landing = landingOfAnswer(deps, claimed, inTime) ?? landingOfWebhook(deps, claimed, notification)
    return deps.land({ claimed, landing })
  }
  const known = landingOfWebhook(deps, claimed, notification)
  // No second call while this one may still be answered.
  const nextPollAt = new Date(deps.clock().getTime() + callDeadlineMs * (1 + Math.random() / 4))
  const told = Promise.withResolvers<boolean>()
  deps.land({ claimed, landing: { ...known, nextPollAt } }, told.resolve)
  const whole = landingOfAnswer(deps, claimed, await call)
  if (!(await told.promise) || !whole || deps.signal.aborted) return
  deps.land({ claimed: undefined, completes: claimed, landing: { ...whole, delivery: undefined } })
}

async function answerOf(deps: ResultFetchesDeps, { claimed, notification }: Understood): Promise<Fetched> {
  try {
    return await fetchFor(deps, claimed, notification, claimed)
  } catch (error) {
    deps.logger.warn(
      { err: error, request_id: notification.request_id },
      'the full result was not asked for, the reconciler completes it',
    )
    return { answer: { kind: 'unreachable', detail: 'not asked' }, keyName: claimed.keyName }
  }
}
