import { execFile } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { expectKept } from '../chaos/books.ts'
import { long, strangerSeconds } from '../chaos/length.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import { residentMebibytes, watchResident } from '../chaos/resident.ts'
import { makeDeliveries, withSender, type Answer, type Outgoing } from '../chaos/sender.ts'
import { strangerRows } from '../chaos/stranger.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { liveKey } from '../support/receiver.ts'
import { headersFor } from '../support/webhooks.ts'

const program = path.resolve(import.meta.dirname, '../chaos/stranger.ts')
const lanes = 4
const pauseMs = long ? 10 : 25
const mebibyte = 1_048_576
/** Memory that the allocator keeps for reuse. */
const nearMebibytes = 256

/** One of each kind in the short form. Tests of intake, framing and connections cover the others. */
const shortNames = [
  'headers without a body',
  'chunks of one byte',
  'readyz',
  'pipelines without Host',
  'pipelines of 60 at 5 Mbit/s',
  'held bodies of 1 MiB',
  'forged bodies of 1 MiB',
]
const names = Object.keys(strangerRows).filter((name) => long || shortNames.includes(name))
const isReported = strangerSeconds > 60 || process.env['CHAOS_REPORT'] !== undefined
/** Short: enough for what is held to be far beyond what may be, and for a turn to be far too long. */
const mostConnections = long ? Number.POSITIVE_INFINITY : 500
const rowSeconds = Math.min(60, strangerSeconds / names.length)

function quantile(values: readonly number[], q: number): number {
  return values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))] ?? NaN
}

it.skipIf(process.platform !== 'linux')(
  'a stranger without a secret neither kills a receiver of 512 MB nor delays other senders by a second',
  { timeout: (strangerSeconds + 600) * 1000 },
  async () => {
    const { url, sql } = await withTestDatabase(preferredServer)
    const keys = [
      liveKey,
      ...Array.from({ length: 9 }, (_, n) => ({
        ...liveKey,
        name: `key ${n}`,
        signing_secret: `whsec_other_secret_${n}`,
      })),
    ]
    const receiver = await withReceiverProcess(url, { GENERATION_KEYS: JSON.stringify(keys) })
    const sender = withSender(receiver.url, lanes)
    const acknowledged: Outgoing[] = []

    /** On a new connection each time, like a provider that keeps none open. */
    const sendAnew = async (delivery: Outgoing): Promise<Answer> => {
      const started = performance.now()
      const headers = { connection: 'close', ...headersFor(delivery.body, delivery) }
      const request = http
        .request(`${receiver.url}/webhooks`, { method: 'POST', agent: false, headers })
        .end(delivery.body)
      const [answer] = await once(request, 'response')
      answer.resume()
      return { status: answer.statusCode, outcome: '', retryAfter: undefined, tookMs: performance.now() - started }
    }

    /** Sends authentic deliveries during the work. */
    const sendDuring = async (work: Promise<unknown>) => {
      const answers: Answer[] = []
      const newcomers: Answer[] = []
      let isOver = false
      const over = work.finally(() => (isOver = true))
      const lane = async (send: (delivery: Outgoing) => Promise<Answer>, into: Answer[]) => {
        while (!isOver) {
          const [delivery] = makeDeliveries(1)
          if (!delivery) return
          const answer = await send(delivery)
          into.push(answer)
          if (answer.status === 200) acknowledged.push(delivery)
          await delay(pauseMs)
        }
      }
      await Promise.all([
        over,
        lane(sendAnew, newcomers),
        ...Array.from({ length: lanes }, () => lane(sender.send, answers)),
      ])
      return { answers, newcomers }
    }

    const alone = await sendDuring(delay(long ? 2000 : 1000))
    const atFirst = await residentMebibytes(receiver.pid())
    const resident = watchResident(receiver.pid)
    const report: Record<string, unknown>[] = []
    const all: Answer[] = []
    const allNew: Answer[] = []
    const until = performance.now() + strangerSeconds * 1000
    for (let turn = 0; turn < names.length || performance.now() < until; turn += 1) {
      const name = names[turn % names.length] ?? ''
      resident.forget()
      const stranger = promisify(execFile)(process.execPath, [
        program,
        receiver.url,
        name,
        String(rowSeconds),
        String(mostConnections),
      ])
      const { answers, newcomers } = await sendDuring(stranger)
      all.push(...answers)
      allNew.push(...newcomers)
      const took = answers.map(({ tookMs }) => tookMs)
      const newTook = newcomers.map(({ tookMs }) => tookMs)
      const refused = answers.filter(({ status }) => status !== 200).length
      const [p50, p99] = [0.5, 0.99].map((q) => Math.round(quantile(took, q)))
      const row = {
        row: name,
        answered: Number((await stranger).stdout),
        sent: answers.length,
        refused,
        p50,
        p99,
        anew: newcomers.length,
        'anew p99': Math.round(quantile(newTook, 0.99)),
        'MiB at most': Math.round(resident.most()),
      }
      report.push(row)
      // At once: an hour that ends badly is worth reading too.
      if (isReported) process.stderr.write(`${JSON.stringify(row)}\n`)
    }
    if (isReported) console.table(report)

    expect(receiver.isRunning()).toBe(true)
    const p99 = (answers: Answer[]) =>
      quantile(
        answers.map(({ tookMs }) => tookMs),
        0.99,
      )
    // A machine may be so slow that ordinary answers take as long without a stranger.
    const maxMs = Math.max(1000, long ? 0 : 10 * p99(alone.answers))
    expect([...all, ...allNew].filter(({ status, tookMs }) => status !== 200 && tookMs < maxMs)).toEqual([])
    expect(p99(all)).toBeLessThan(maxMs)
    expect(await receiver.ready()).toBe(200)
    await expectKept(sql, acknowledged)
    await eventually(async () => (await residentMebibytes(receiver.pid())) < atFirst + nearMebibytes)
    const [held] = await sql<
      { bytes: number }[]
    >`select coalesce(sum(bytes), 0)::float8 as bytes from mediadock.quarantine`
    expect(held?.bytes).toBeLessThan(68 * mebibyte)
  },
)
