import { setTimeout as delay } from 'node:timers/promises'
import { Pool } from 'undici'

export type Call = { method: 'GET' | 'POST'; path: string; headers?: Record<string, string>; body?: string }
export type Measured = { calls: number; perSecond: number; p50Ms: number; p99Ms: number }
export type OnAnswer = (text: string, index: number) => void

/**
 * For throughput: keeps `connections` calls in flight, each connection waiting
 * for its answer, until `calls` are done or `seconds` have passed.
 */
export async function closedLoop(
  url: string,
  { connections, seconds, calls = Infinity }: { connections: number; seconds: number; calls?: number },
  next: (index: number) => Call,
  onAnswer?: OnAnswer,
): Promise<Measured> {
  const sender = createSender(url, connections, onAnswer)
  const until = performance.now() + seconds * 1000
  let index = 0
  const lane = async () => {
    while (performance.now() < until && index < calls) {
      const turn = index++
      await sender.send(next(turn), turn)
    }
  }
  await Promise.all(Array.from({ length: connections }, lane))
  return sender.finish()
}

/**
 * For latency: calls go out at a steady rate whether or not the ones before are
 * answered, and each is timed from when it should have gone, so that a server
 * that stalls cannot hide the calls that it kept from being sent.
 */
export async function steadyRate(
  url: string,
  { perSecond, seconds }: { perSecond: number; seconds: number },
  next: (index: number) => Call,
  onAnswer?: OnAnswer,
): Promise<Measured> {
  const sender = createSender(url, 256, onAnswer)
  const started = performance.now()
  const sent: Promise<void>[] = []
  for (let index = 0; index < perSecond * seconds; index += 1) {
    const due = started + (index * 1000) / perSecond
    const early = due - performance.now()
    if (early > 1) await delay(early)
    sent.push(sender.send(next(index), index, due))
  }
  await Promise.all(sent)
  return sender.finish()
}

function createSender(url: string, connections: number, onAnswer: OnAnswer = () => {}) {
  const pool = new Pool(url, { connections, pipelining: 1 })
  const latenciesMs: number[] = []
  const started = performance.now()
  // Any answer but 200 ends the benchmark: its figures would mean nothing.
  const send = async (call: Call, index: number, since = performance.now()): Promise<void> => {
    const { statusCode, body } = await pool.request({ headersTimeout: 30_000, bodyTimeout: 30_000, ...call })
    const text = await body.text()
    latenciesMs.push(performance.now() - since)
    if (statusCode !== 200) throw new Error(`${call.method} ${call.path} answered ${statusCode}: ${text.slice(0, 200)}`)
    onAnswer(text, index)
  }
  const finish = async (): Promise<Measured> => {
    const tookSeconds = (performance.now() - started) / 1000
    await pool.close()
    latenciesMs.sort((a, b) => a - b)
    const at = (share: number) =>
      latenciesMs[Math.min(Math.floor(latenciesMs.length * share), latenciesMs.length - 1)] ?? 0
    return { calls: latenciesMs.length, perSecond: latenciesMs.length / tookSeconds, p50Ms: at(0.5), p99Ms: at(0.99) }
  }
  return { send, finish }
}
