import { setTimeout as delay } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { makeDeliveries, withSender, type Answer, type Connecting, type Outgoing } from './sender.ts'

export type Acknowledged = {
  delivery: Outgoing
  /** By which of the receivers, and when, in milliseconds since 1970. */
  url: string
  at: number
  /** How often it was sent. */
  tries: number
}

export type Tally = {
  acknowledged: Acknowledged[]
  /** Answered `duplicate` to the first try of all. */
  wrongDuplicates: number
  refused: number
  broken: number
  /** Not sent again, though it was never acknowledged. */
  givenUp: number
  /** Any answer. */
  slowestMs: number
}

export type LoadOptions = {
  /** Sent to in turn; a delivery that is not acknowledged goes to the next one. */
  urls: readonly string[]
  perSecond: number
  /** So many are under way at a time at the most: beyond it nothing new is sent. */
  atOnce?: number
  /** False: each is sent only once, also after a failure. */
  again?: boolean
  pauseMs?: number
  /** Of these lengths, as the provider does: after the last of them it gives a delivery up. */
  pausesMs?: readonly number[]
  /** Fewer than may be under way, since deliveries that wait for a retry need no connection. */
  connections?: number
  /** The key that signs new deliveries. */
  secret?: () => string
  /** For TLS, and where from. */
  connecting?: Connecting
}

export type SteadyLoad = {
  /** As it stands. */
  tally: Tally
  /** Sends nothing new; settles when all that was sent is acknowledged. */
  end: () => Promise<Tally>
}

const stepMs = 25

/** As the provider does, only sooner: a steady rate of new deliveries, each sent until it is answered 200. */
export function startLoad({
  urls,
  perSecond,
  atOnce = 256,
  again = true,
  pauseMs = 100,
  pausesMs,
  connections,
  secret,
  connecting,
}: LoadOptions): SteadyLoad {
  const senders = urls.map((url) => ({ url, sender: withSender(url, connections ?? atOnce, connecting) }))
  const tally: Tally = { acknowledged: [], wrongDuplicates: 0, refused: 0, broken: 0, givenUp: 0, slowestMs: 0 }
  const open = new Set<Promise<void>>()
  let turn = 0
  let isOver = false
  let isGivenUp = false

  const note = (answer: Answer | undefined, tries: number) => {
    if (answer === undefined) return (tally.broken += 1)
    tally.slowestMs = Math.max(tally.slowestMs, answer.tookMs)
    if (answer.outcome === 'duplicate' && tries === 1) tally.wrongDuplicates += 1
    return answer.status === 200 ? 0 : (tally.refused += 1)
  }
  const sendOne = async (delivery: Outgoing): Promise<void> => {
    for (let tries = 1; !isGivenUp; tries += 1) {
      const to = senders[(turn += 1) % senders.length]
      if (!to) return
      const answer = await to.sender.send(delivery).catch(() => undefined)
      note(answer, tries)
      if (answer?.status === 200) return void tally.acknowledged.push({ delivery, url: to.url, at: Date.now(), tries })
      const pause = pausesMs === undefined ? pauseMs : pausesMs[tries - 1]
      if (!again || pause === undefined) return void (tally.givenUp += 1)
      await delay(pause)
    }
  }
  const sending = (async () => {
    const started = performance.now()
    let due = 0
    while (!isOver) {
      const now = Math.floor(((performance.now() - started) / 1000) * perSecond)
      const fresh = Math.max(0, Math.min(now - due, atOnce - open.size))
      due = now
      for (const delivery of makeDeliveries(fresh)) {
        const one = sendOne(secret ? { ...delivery, secret: secret() } : delivery)
        open.add(one)
        void one.finally(() => open.delete(one))
      }
      await delay(stepMs)
    }
  })()
  onTestFinished(() => {
    isOver = true
    isGivenUp = true
  })
  return {
    tally,
    end: async () => {
      isOver = true
      await sending
      await Promise.all(open)
      return tally
    },
  }
}

/** The longest time between two acknowledgements that followed each other. */
export function longestSilenceMs(acknowledged: readonly Acknowledged[]): number {
  const times = acknowledged.map(({ at }) => at).sort((a, b) => a - b)
  return times.slice(1).reduce((most, at, before) => Math.max(most, at - (times[before] ?? at)), 0)
}

/** When something was acknowledged for the first time at or after this moment. */
export function firstAfter(acknowledged: readonly Acknowledged[], moment: number): number {
  return acknowledged.reduce((first, { at }) => (at >= moment && at < first ? at : first), Infinity)
}
