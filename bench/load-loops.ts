import { Pool } from 'undici'

export type Call = { method: 'GET' | 'POST'; path: string; headers?: Record<string, string>; body?: string }
export type Measured = { calls: number; perSecond: number; p50Ms: number; p99Ms: number }

/**
 * Keeps `connections` calls in flight, each connection waiting for its answer,
 * until `calls` are done or `seconds` have passed. Any answer but 200 ends it.
 */
export async function closedLoop(
  url: string,
  { connections, seconds, calls = Infinity }: { connections: number; seconds: number; calls?: number },
  next: (index: number) => Call,
  onAnswer: (text: string, index: number) => void = () => {},
): Promise<Measured> {
  const pool = new Pool(url, { connections, pipelining: 1 })
  const latenciesMs: number[] = []
  const started = performance.now()
  const until = started + seconds * 1000
  let index = 0
  const lane = async () => {
    while (performance.now() < until && index < calls) {
      const turn = index++
      const call = next(turn)
      const sent = performance.now()
      const { statusCode, body } = await pool.request({ headersTimeout: 30_000, bodyTimeout: 30_000, ...call })
      const text = await body.text()
      latenciesMs.push(performance.now() - sent)
      if (statusCode !== 200) throw new Error(`${call.method} ${call.path} answered ${statusCode}: ${text.slice(0, 200)}`)
      onAnswer(text, turn)
    }
  }
  await Promise.all(Array.from({ length: connections }, lane))
  const tookSeconds = (performance.now() - started) / 1000
  await pool.close()
  latenciesMs.sort((a, b) => a - b)
  const at = (share: number) => latenciesMs[Math.min(Math.floor(latenciesMs.length * share), latenciesMs.length - 1)] ?? 0
  return { calls: latenciesMs.length, perSecond: latenciesMs.length / tookSeconds, p50Ms: at(0.5), p99Ms: at(0.99) }
}
