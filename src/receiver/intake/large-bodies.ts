import { setImmediate as nextTurn } from 'node:timers/promises'

/** From here on verifying a body is long work, which a stranger can ask for: it is done in turns. */
export const largeBodyBytes = 64 * 1024

/**
 * One piece of long work after another, and between any two steps of it a turn
 * of the event loop: small deliveries are answered in between, however many large
 * bodies wait. Those are bounded by the budget of what is being received.
 */
export function createTurns() {
  let last: Promise<unknown> = Promise.resolve()

  return <Result>(steps: Iterator<undefined, Result, undefined>): Promise<Result> => {
    const work = async () => {
      for (;;) {
        const step = steps.next()
        if (step.done === true) return step.value
        await nextTurn()
      }
    }
    const mine = last.then(work, work)
    last = mine.catch(() => {})
    return mine
  }
}
