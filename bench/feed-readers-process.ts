import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { readResults } from '../src/client/read-results.ts'
import type { Read, ReadOrder } from './feed-readers.ts'

/** Services that read every change: see feed-readers.ts. */
type Reader = { positions: number[]; lagsMs: number[] }

const order: ReadOrder = JSON.parse(process.argv[2] ?? '')
const arriveMs = 120_000

const readers = [
  ...Array.from({ length: order.sql }, () =>
    read({ sql: postgres(order.databaseUrl, { max: 1, onnotice: () => {} }) }),
  ),
  ...Array.from({ length: order.http }, () => read({ url: order.consoleUrl })),
]
process.on('disconnect', () => process.exit(0))
process.send?.({ url: '' })
const [last]: number[] = await once(process, 'message')
process.send?.(await summary(last ?? NaN))

function read(from: Parameters<typeof readResults>[0]['from']): Reader {
  const reader: Reader = { positions: [], lagsMs: [] }
  const results = readResults({ from, after: order.after })
  const reading = async () => {
    for await (const { position } of results) {
      reader.positions.push(position)
      reader.lagsMs.push(results.lag().ms)
    }
  }
  reading().catch((error: unknown) => {
    process.stderr.write(`a reader of the feed ended: ${String(error)}\n`)
    process.exit(1)
  })
  return reader
}

async function summary(position: number): Promise<Read> {
  const deadline = performance.now() + arriveMs
  while (readers.some(({ positions }) => (positions.at(-1) ?? order.after) < position)) {
    if (performance.now() > deadline)
      throw new Error(`a reader had not come to ${position} of the feed after ${arriveMs / 1000} s`)
    await delay(20)
  }
  const lags = readers.flatMap(({ lagsMs }) => lagsMs).sort((a, b) => a - b)
  const at = (share: number) => lags[Math.min(Math.floor(lags.length * share), lags.length - 1)] ?? NaN
  return {
    changes: readers.map(({ positions }) => positions.filter((one) => one <= position).length),
    p50Ms: at(0.5),
    p99Ms: at(0.99),
  }
}
