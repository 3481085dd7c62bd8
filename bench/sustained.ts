import { startExpressProcess, timeStatus, type Contender } from './contenders.ts'
import type { Figures } from './goals.ts'
import { measureLatency } from './latency.ts'
import type { Load } from './load.ts'
import { peakRssMbOf } from './processes.ts'
import {
  connections,
  costOf,
  metricOf,
  unlimitedFetching,
  untilComplete,
  untilLanded,
  untilLogged,
  waitingOf,
  warmUp,
  withRig,
  type Cost,
  type Rig,
} from './rig.ts'
import type { BenchServer } from './servers.ts'
import type { Kind } from './signed-requests.ts'
import { median, print, say, table } from './tables.ts'
import { startInsertContender } from './throughput.ts'

export type SustainedSize = { probes: number; probeSeconds: number; confirmSeconds: number; latencySeconds: number }

/** A rate that was offered for a time, and what stood at its end. */
export type Probe = Load & Cost & { offered: number; waiting: number; dropped: number; why: string | undefined }

/** Of what was offered: the answers to the last requests are on their way when the time is up. */
const reachedShare = 0.98
/** A step down after a rate that was held for a probe and not for a minute. */
const stepDown = 0.93
const maxConfirms = 6
const aboveMost = 1.25

/**
 * The highest offered rate at which nothing piles up, beside one insert per request of the same
 * run, then the latency at half of it.
 */
export async function benchSustained(server: BenchServer, size: SustainedSize): Promise<Figures> {
  const { confirmed, disk, walBytes, at1000, ratio, peakRss, statusSeconds } = await withRig(
    server,
    {},
    async (rig) => {
      const insert = await startInsertContender(server)
      const express = await startExpressProcess()
      const inserted: number[] = []
      const turn = { url: insert.webhooksUrl, connections }
      let sustained: Sustained
      let at1000: Probe
      try {
        await rig.generator.run({ ...turn, requests: 10_000 })
        await rig.generator.run({ ...turn, url: express.webhooksUrl, requests: 10_000 })
        await warmUp(rig)
        // Before, between and after, so that it saw the same machine.
        const insertRound = async () => {
          const requests = Math.ceil((inserted.at(-1) ?? 3000) * size.probeSeconds)
          inserted.push((await rig.generator.run({ ...turn, requests })).perSecond)
        }
        await insertRound()
        const { perSecond: most } = await rig.generator.run({
          url: rig.receiver.webhooksUrl,
          connections,
          requests: 20_000,
        })
        await untilLanded(rig.sql)
        sustained = await findSustained(rig, { ...size, most, between: insertRound })
        await insertRound()
        at1000 = await probe(rig, 1000, { seconds: size.probeSeconds, maxWaiting: 1000 })
        print(await steadyTable(rig, at1000, { insert, express }, size))
      } finally {
        await insert.stop()
        await express.stop()
      }
      // The first one compiles the program.
      await timeStatus(rig.databaseUrl)
      const statusSeconds = await timeStatus(rig.databaseUrl)
      const found = { ...sustained, inserted: median(inserted), peakRss: await peakRssMbOf(rig.receiver.pid) }
      const ratio = (found.confirmed?.offered ?? NaN) / found.inserted
      print(sustainedTable(rig, { ...found, ratio }))
      return { ...found, ratio, at1000, statusSeconds }
    },
  )
  // When that receiver and its tables are gone: neither its polls nor their vacuum are part of half the load.
  const half = confirmed ? await latencies(server, confirmed.offered / 2, size.latencySeconds) : undefined
  return {
    sustainedToInsert: ratio,
    cpuSustained: cpuMicrosecondsOf(confirmed),
    cpuAt1000: cpuMicrosecondsOf(at1000),
    peakRss,
    diskToBody: disk,
    walBytes,
    statusSeconds,
    directP50: half?.direct.p50Ms ?? NaN,
    directP99: half?.direct.p99Ms ?? NaN,
    aloneP50: half?.alone.p50Ms ?? NaN,
    fetchedP50: half?.fetched.p50Ms ?? NaN,
    fetchedAtRateP50: half?.fetchedAtRate.p50Ms ?? NaN,
  }
}

function cpuMicrosecondsOf(probed: Probe | undefined): number {
  return probed ? ((probed.receiverSeconds + probed.postgresSeconds) / probed.acknowledged) * 1e6 : NaN
}

/** The floor that HTTP and one commit a request set on this machine, at the steady rates that have goals. */
async function steadyTable(
  rig: Rig,
  receiverAt1000: Probe,
  contenders: { insert: Contender; express: Contender },
  { probeSeconds, latencySeconds }: SustainedSize,
): Promise<string> {
  const { generator, server } = rig
  const rows = []
  const all = {
    receiver: rig.receiver,
    'one insert per request': contenders.insert,
    'Express + HMAC': contenders.express,
  }
  for (const [name, contender] of Object.entries(all)) {
    const run = (perSecond: number, seconds: number) =>
      generator.run({ url: contender.webhooksUrl, connections, requests: perSecond * seconds, perSecond })
    const at1000 =
      contender === rig.receiver
        ? receiverAt1000
        : await costOf({ receiver: contender, server }, () => run(1000, probeSeconds))
    const alone = await run(alonePerSecond, latencySeconds)
    await untilLanded(rig.sql)
    const each = (seconds: number) => (seconds / at1000.acknowledged) * 1e6
    const { receiverSeconds, postgresSeconds } = at1000
    rows.push([
      name,
      each(receiverSeconds),
      each(postgresSeconds),
      each(receiverSeconds + postgresSeconds),
      alone.p50Ms,
    ])
  }
  const columns = ['', 'process, µs of CPU at 1,000/s', 'Postgres', 'both', `answered at ${alonePerSecond}/s, p50 ms`]
  return table(`A request at a steady rate on ${server.words}`, columns, rows)
}

type Sustained = { confirmed: Probe | undefined; disk: number; walBytes: number }
type Search = SustainedSize & { most: number; between?: () => Promise<void> }

/** Halves the interval by short probes, then holds what it found for a minute, a step lower until that is held. */
export async function findSustained(
  rig: Rig,
  { probes, probeSeconds, confirmSeconds, most, between }: Search,
): Promise<Sustained> {
  // Above what was acknowledged in one round, which may have met a slow moment.
  let [low, high] = [0, Math.round(most * aboveMost)]
  for (let step = 0; step < probes; step += 1) {
    const rate = Math.round((low + high) / 2)
    // A backlog that grows in a short probe would grow further within a minute.
    const short = { seconds: probeSeconds, maxWaiting: rate * Math.min(1, (probeSeconds / confirmSeconds) * 2) }
    let probed = await probe(rig, rate, short)
    // A checkpoint that falls into one of them must not halve the result; what is found is held for longer anyway.
    if (probed.why !== undefined) probed = await probe(rig, rate, short)
    if (probed.why === undefined) low = rate
    else high = rate
  }
  await between?.()
  await untilLogged(rig.sql)
  const [before, walBefore] = [await bytesOnDisk(rig), await walOf(rig)]
  let deliveries = 0
  let bodyBytes = 0
  for (let tries = 0, rate = low; tries < maxConfirms && rate > 0; tries += 1, rate = Math.round(rate * stepDown)) {
    const confirmed = await probe(rig, rate, { seconds: confirmSeconds, maxWaiting: rate })
    bodyBytes += confirmed.bodyBytes
    deliveries += confirmed.acknowledged
    if (confirmed.why !== undefined) continue
    await untilLogged(rig.sql)
    const walBytes = ((await walOf(rig)) - walBefore) / deliveries
    return { confirmed, disk: ((await bytesOnDisk(rig)) - before) / bodyBytes, walBytes }
  }
  return { confirmed: undefined, disk: NaN, walBytes: NaN }
}

/** Offers a rate for a time; `why` says what kept it from being sustained. */
export async function probe(
  rig: Rig,
  perSecond: number,
  { seconds, maxWaiting }: { seconds: number; maxWaiting: number },
): Promise<Probe> {
  const { receiver, generator, sql } = rig
  const dropped = () => metricOf(receiver, 'mediadock_arrival_log_dropped_total')
  const [landedBefore, droppedBefore] = [await landed(sql), await dropped()]
  const requests = Math.round(perSecond * seconds)
  let waiting = NaN
  const load = await costOf(rig, async () => {
    const sent = await generator.run({ url: receiver.webhooksUrl, connections, requests, perSecond })
    waiting = await waitingOf(sql)
    return sent
  })
  await untilLanded(sql)
  const lost = load.acknowledged - ((await landed(sql)) - landedBefore)
  if (lost > 0)
    throw new Error(`${lost} deliveries were acknowledged, are no longer in the inbox, and are not in results`)
  const droppedNow = (await dropped()) - droppedBefore
  const why =
    load.refused > 0
      ? `${load.refused} were not answered 200`
      : load.inTime < requests * reachedShare
        ? `only ${load.inTime} of ${requests} were answered in time`
        : waiting > maxWaiting
          ? `${waiting} waited in the inbox at the end`
          : droppedNow > 0
            ? `the log had no room for ${droppedNow} arrivals`
            : undefined
  say(`${perSecond}/s for ${seconds} s: ${why ?? 'held'} (${waiting} waited)`)
  return { ...load, offered: perSecond, waiting, dropped: droppedNow, why }
}

async function landed(sql: Rig['sql']): Promise<number> {
  const [row] = await sql<{ n: number }[]>`select count(*)::int as n from mediadock.results where landed_at is not null`
  return row?.n ?? NaN
}

/** Over all tables and indexes of the schema. */
export async function bytesOnDisk({ sql }: Pick<Rig, 'sql'>): Promise<number> {
  const [row] = await sql<{ bytes: string }[]>`
    select sum(pg_total_relation_size(c.oid)) as bytes from pg_class c where relnamespace = 'mediadock'::regnamespace and relkind in ('r', 'm')`
  return Number(row?.bytes)
}

/** Bytes of the write-ahead log since the server was made. */
async function walOf({ sql }: Pick<Rig, 'sql'>): Promise<number> {
  const [row] = await sql<{ bytes: string }[]>`select pg_current_wal_insert_lsn() - '0/0' as bytes`
  return Number(row?.bytes)
}

const fetchedPerSecond = 100
const alonePerSecond = 10

/** On separate receivers: deliveries that land without a call, within the usual quota, then some that all need one. */
async function latencies(server: BenchServer, perSecond: number, seconds: number) {
  const rows: (string | number)[][] = []
  const measure = async (rig: Rig, words: string, at: { perSecond: number; kind: Kind }) => {
    say(`${words} at ${Math.round(at.perSecond)}/s for ${seconds} s`)
    const latency = await measureLatency(rig, { ...at, seconds })
    rows.push([
      words,
      at.perSecond,
      latency.samples,
      latency.answeredP50Ms,
      latency.p50Ms,
      latency.p99Ms,
      latency.missing,
    ])
    return latency
  }
  const landing = await withRig(server, {}, async (rig) => {
    await warmUp(rig)
    const words = 'nothing to fetch'
    const direct = await measure(rig, words, { perSecond, kind: 'direct' })
    return { direct, alone: await measure(rig, words, { perSecond: alonePerSecond, kind: 'direct' }) }
  })
  const fetching = await withRig(server, { env: unlimitedFetching }, async (rig) => {
    const words = 'fetched, the provider answers in 20 ms'
    await rig.provider.order({ answerMs: 20 })
    await warmUpFetching(rig)
    const fetchedAtRate = await measure(rig, words, { perSecond: fetchedPerSecond, kind: 'image' })
    return { fetchedAtRate, fetched: await measure(rig, words, { perSecond, kind: 'image' }) }
  })
  const columns = ['', 'a second', 'samples', 'answered p50 ms', 'p50 ms', 'p99 ms', 'not there after 30 s']
  print(table(`From arrival to results on ${server.words}`, columns, rows))
  return { ...landing, ...fetching }
}

/** With pictures, since audio would be completed while something else is measured. */
async function warmUpFetching({ generator, receiver, sql }: Rig): Promise<void> {
  await generator.run({ url: receiver.webhooksUrl, connections, requests: 1000, kind: 'image', perSecond: 200 })
  await untilComplete(sql)
}

type Found = { confirmed: Probe | undefined; ratio: number; inserted: number; peakRss: number; disk: number }

function sustainedTable({ server }: Rig, { confirmed, ratio, inserted, peakRss, disk }: Found): string {
  const each = (seconds: number) => (seconds / (confirmed?.acknowledged ?? NaN)) * 1e6
  return table(
    `Sustained on ${server.words}`,
    ['', ''],
    [
      ['acknowledged and landed, nothing piling up, a second', confirmed?.offered ?? 'none'],
      ['one insert per request, a second', inserted],
      ['ratio', ratio],
      ['acknowledged within, p50 and p99 ms', `${confirmed?.p50Ms.toFixed(1)}, ${confirmed?.p99Ms.toFixed(1)}`],
      ['waiting in the inbox at the end', confirmed?.waiting],
      ['CPU of the receiver, µs a delivery', each(confirmed?.receiverSeconds ?? NaN)],
      ['CPU of Postgres, µs a delivery', each(confirmed?.postgresSeconds ?? NaN)],
      ['CPU of the generator, µs a delivery', each(confirmed?.cpuSeconds ?? NaN)],
      ['RSS of the receiver at the peak, MB', peakRss],
      ['bytes on disk ÷ bytes of body', disk],
    ],
  )
}
