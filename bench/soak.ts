import { setTimeout as delay } from 'node:timers/promises'
import type { Figures } from './goals.ts'
import { peakRssMbOf, rssMbOf } from './processes.ts'
import { connections, metricOf, untilLanded, waitingOf, warmUp, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { findSustained } from './sustained.ts'
import { print, say, table } from './tables.ts'

export type SoakSize = { minutes: number; probes: number; probeSeconds: number; confirmSeconds: number }

const share = 0.8
const sampleMs = 10_000
const saidEvery = 12
/** The slope is taken once the process has grown to its working size. */
const settledShare = 1 / 3

type Sample = { minutes: number; rssMb: number; heapMb: number; waiting: number }

/** The receiver's memory under a load that it can hold. */
export async function benchSoak(server: BenchServer, size: SoakSize): Promise<Figures> {
  const perSecond = await withRig(server, {}, async (rig) => {
    await warmUp(rig)
    const most = (await rig.generator.run({ url: rig.receiver.webhooksUrl, connections, requests: 20_000 })).perSecond
    await untilLanded(rig.sql)
    const { confirmed } = await findSustained(rig, { ...size, latencySeconds: 0, most })
    return Math.round((confirmed?.offered ?? most / 4) * share)
  })
  // A new one, and no file of its log: half an hour of it would fill gigabytes.
  return withRig(server, { logFile: '/dev/null' }, async (rig) => {
    const samples = await soak(rig, perSecond, size.minutes)
    const peak = await peakRssMbOf(rig.receiver.pid)
    const settled = samples.filter(({ minutes }) => minutes >= size.minutes * settledShare)
    const row = (words: string, pick: (sample: Sample) => number, most: number) => [
      words,
      pick(samples[0] ?? none),
      most,
      pick(samples.at(-1) ?? none),
      slope(settled.map((sample) => [sample.minutes / 60, pick(sample)])),
    ]
    const columns = ['MB', 'start', 'peak', 'end', 'slope, MB an hour, after the first third']
    print(
      table(`${size.minutes} minutes at ${perSecond} a second on ${server.words}`, columns, [
        row('RSS', ({ rssMb }) => rssMb, peak),
        row('heap', ({ heapMb }) => heapMb, Math.max(...samples.map(({ heapMb }) => heapMb))),
        [
          'most that waited in the inbox',
          '',
          Math.max(...samples.map(({ waiting }) => waiting)),
          samples.at(-1)?.waiting,
          '',
        ],
        [
          'of all looks, % at which more than a second of the load waited',
          '',
          (samples.filter(({ waiting }) => waiting > perSecond).length / samples.length) * 100,
          '',
          '',
        ],
      ]),
    )
    return { peakRss: peak }
  })
}

const none: Sample = { minutes: NaN, rssMb: NaN, heapMb: NaN, waiting: NaN }

async function soak({ generator, receiver, sql }: Rig, perSecond: number, minutes: number): Promise<Sample[]> {
  const samples: Sample[] = []
  const started = performance.now()
  const look = async () => {
    const heapMb = (await metricOf(receiver, 'nodejs_heap_size_used_bytes')) / 2 ** 20
    const since = (performance.now() - started) / 60_000
    samples.push({ minutes: since, rssMb: await rssMbOf(receiver.pid), heapMb, waiting: await waitingOf(sql) })
  }
  await look()
  const over = new AbortController()
  const requests = Math.round(perSecond * minutes * 60)
  const sending = generator
    .run({ url: receiver.webhooksUrl, connections, requests, perSecond })
    .finally(() => over.abort())
  const looking = (async () => {
    while (!over.signal.aborted) {
      await delay(sampleMs, undefined, { signal: over.signal }).catch(() => {})
      await look()
      if (samples.length % saidEvery === 0) {
        const most = Math.max(...samples.slice(-saidEvery).map(({ waiting }) => waiting))
        say(
          `${samples.at(-1)?.minutes.toFixed(1)} min: ${Math.round(samples.at(-1)?.rssMb ?? NaN)} MB, at most ${most} waited`,
        )
      }
    }
  })()
  const [{ refused, acknowledged }] = await Promise.all([sending, looking])
  if (refused > 0 || acknowledged < requests * 0.98)
    say(`${acknowledged} of ${requests} were acknowledged, ${refused} refused`)
  await untilLanded(sql)
  return samples
}

/** Of the straight line that is nearest to the points. */
function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (at: 0 | 1) => points.reduce((sum, point) => sum + point[at], 0) / points.length
  const [x, y] = [mean(0), mean(1)]
  const over = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0)
  return over / points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0)
}
