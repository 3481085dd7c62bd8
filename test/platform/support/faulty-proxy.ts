import { startRelay } from './relay.ts'

/** A relay in front of Postgres that can lose the answers of the connections that it has, or be far away. */
export async function startFaultyProxy(url: string) {
  let generation = 0
  let mutedBefore = 0
  let lateMs = 0
  const relay = await startRelay(url, ({ client }) => {
    const mine = (generation += 1)
    return (chunk) => {
      const pass = () => {
        if (mine > mutedBefore && client.writable) client.write(chunk)
      }
      if (lateMs > 0) setTimeout(pass, lateMs)
      else pass()
    }
  })
  return {
    url: relay.url,
    /** Statements on the currently open connections still arrive, but no answer comes back. New connections work. */
    loseAnswers: () => {
      mutedBefore = generation
    },
    resetAll: relay.resetAll,
    /** From now on each answer comes so much later. */
    delayAnswers: (ms: number) => {
      lateMs = ms
    },
  }
}
