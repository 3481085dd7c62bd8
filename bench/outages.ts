import { setTimeout as delay } from 'node:timers/promises'
import type { Figures } from './goals.ts'
import { onResults, type Heard } from './latency.ts'
import { sharedNowMs } from './load.ts'
import { unlimitedFetching, untilLanded, warmUp, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { signedRequest, type Signed } from './signed-requests.ts'
import { print, say, table } from './tables.ts'

export type OutageSize = { hangRounds: number; kills: number; awaySeconds: number }

/** Measures the cost of an outage for services that wait for results. */
export async function benchOutages(
  server: BenchServer,
  { hangRounds, kills, awaySeconds }: OutageSize,
): Promise<Figures> {
  const hang = await withRig(server, { env: unlimitedFetching }, (rig) => hangingCall(rig, hangRounds))
  const killed = await withRig(server, { env: enoughForKills }, (rig) => killedReceiver(rig, kills))
  const back = await withRig(server, { env: unlimitedFetching }, (rig) => providerAway(rig, awaySeconds))
  const rows = [
    [
      `one of ${crowd} calls to the provider hangs: the results of the others are complete after, the last of ${hangRounds} times, s`,
      hang.others,
    ],
    ['its own first link is in results after, s', hang.own],
    [
      `kill -9 under ${loadPerSecond} a second, a second receiver runs: all that was acknowledged is in results after, the last of ${kills} times, s`,
      killed.seconds,
    ],
    ['acknowledged a second by the one that was killed, the least', killed.perSecond],
    ['acknowledged and not in results by then', killed.waiting],
    [
      `provider away for ${awaySeconds} s: 95 % of the ${back.incomplete} that were incomplete are complete after its return, s`,
      back.seconds,
    ],
  ]
  print(table(`Outages on ${server.words}`, ['', ''], rows))
  return {
    othersLate: hang.others,
    ownFirstLink: hang.own,
    killed: killed.perSecond < loadPerSecond * reachedShare ? NaN : killed.seconds,
    providerBack: back.seconds,
  }
}

const crowd = 16
const giveUpMs = 90_000

/** Many pictures at the same moment, while the provider never answers the call for one of them. */
async function hangingCall({ receiver, provider, sql }: Rig, rounds: number): Promise<{ others: number; own: number }> {
  const heard: Heard[] = []
  const unlisten = await onResults(sql, (one) => heard.push(one))
  let [others, own] = [0, 0]
  for (let round = -1; round < rounds; round += 1) {
    const pictures = Array.from({ length: crowd }, (_, at) => signedRequest('image', at, Math.floor(Date.now() / 1000)))
    const [hangs, ...rest] = pictures.map(({ requestId }) => requestId)
    // The first round, in which all is new to the process, is not counted, and nothing hangs in it.
    await provider.order({ answerMs: 20, hangs: round < 0 || !hangs ? [] : [hangs] })
    const startedMs = sharedNowMs()
    await Promise.all(pictures.map((picture) => post(receiver.webhooksUrl, picture)))
    const secondsUntil = (requestId: string | undefined, isEnd: (one: Heard) => boolean) => {
      const end = heard.find((one) => one.requestId === requestId && isEnd(one))
      return end ? (end.atMs - startedMs) / 1000 : Infinity
    }
    const worst = () => Math.max(...rest.map((id) => secondsUntil(id, ({ mediaComplete }) => mediaComplete)))
    const first = () => secondsUntil(hangs, () => true)
    const deadline = performance.now() + giveUpMs
    while (Math.max(worst(), first()) === Infinity && performance.now() < deadline) await delay(20)
    if (round < 0) continue
    say(`a call hangs: the others after ${worst().toFixed(2)} s, its own first link after ${first().toFixed(2)} s`)
    others = Math.max(others, worst())
    own = Math.max(own, first())
    await provider.order({ hangs: [] })
    await untilLanded(sql)
  }
  await unlisten()
  return { others, own }
}

async function post(url: string, { bytes }: Signed): Promise<void> {
  const [head = '', body = ''] = bytes.toString('latin1').split('\r\n\r\n')
  const headers = head
    .split('\r\n')
    .slice(1)
    .map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)])
    .filter(([name]) => name !== 'host' && name !== 'content-length')
  const answer = await fetch(url, { method: 'POST', headers, body })
  const text = await answer.text()
  if (text !== '{"status":"accepted"}') throw new Error(`unexpected answer: ${answer.status} ${text}`)
}

const loadPerSecond = 1500
const killAfterSeconds = 3
/** Long enough that at any moment the one that is killed has calls in flight, and so deliveries in its hands. */
const slowAnswerMs = 400

type Killed = { seconds: number; waiting: number; perSecond: number }

/** A receiver that was killed under less than this share of the load shows nothing of it. */
const reachedShare = 0.8

/** Enough for what has to be fetched, and not for completing all the audio at the same time. */
const enoughForKills = { FETCH_RATE_PER_MINUTE: '6000' }

/** Of two receivers the one under load is killed; what it had acknowledged is the other's to land. */
async function killedReceiver(rig: Rig, kills: number): Promise<Killed> {
  const { sql, generator, provider, receiver: survivor } = rig
  await provider.order({ answerMs: slowAnswerMs })
  await warmUp(rig)
  let [slowest, left, least] = [0, 0, Infinity]
  for (let kill = 1; kill <= kills; kill += 1) {
    const victim = await rig.startReceiver()
    await generator.run({ url: victim.webhooksUrl, connections: 64, requests: 5000 })
    await untilLanded(sql)
    const requests = loadPerSecond * killAfterSeconds * 2
    const order = {
      connections: 64,
      requests,
      kind: 'mixed' as const,
      perSecond: loadPerSecond,
      withIds: true,
      mayBreak: true,
    }
    const loading = generator.run({ url: victim.webhooksUrl, ...order })
    // It signs what it will send before it sends the first.
    await untilSomeArrived(rig)
    await delay(killAfterSeconds * 1000)
    const killedAt = performance.now()
    await victim.kill()
    const { sent } = await loading
    const acknowledged = sent.filter((one) => one.acknowledged).map(({ requestId }) => requestId)
    const { seconds, waiting } = await untilInResults(sql, acknowledged, killedAt)
    say(`kill -9 with ${acknowledged.length} acknowledged: all in results after ${seconds.toFixed(1)} s`)
    slowest = Math.max(slowest, seconds)
    least = Math.min(least, acknowledged.length / killAfterSeconds)
    left = Math.max(left, waiting)
    await untilLanded(sql)
  }
  if ((await fetch(new URL('/readyz', survivor.webhooksUrl))).status !== 200)
    throw new Error('the second receiver is not ready')
  return { seconds: slowest, waiting: left, perSecond: least }
}

async function untilSomeArrived({ sql }: Rig): Promise<void> {
  const count = async () => (await sql<{ n: number }[]>`select count(*)::int as n from mediadock.deliveries`)[0]?.n ?? 0
  const before = await count()
  while ((await count()) === before) await delay(20)
}

async function untilInResults(
  sql: Rig['sql'],
  ids: readonly string[],
  since: number,
): Promise<{ seconds: number; waiting: number }> {
  for (;;) {
    const [row] = await sql<{ n: number }[]>`
      select count(*)::int as n from unnest(${[...ids]}::uuid[]) as i (id) where not exists (
        select from mediadock.results where request_id = i.id and landed_at is not null)`
    const waiting = row?.n ?? NaN
    const seconds = (performance.now() - since) / 1000
    if (waiting === 0) return { seconds, waiting }
    if (seconds * 1000 > giveUpMs) return { seconds: Infinity, waiting }
    await delay(50)
  }
}

const awayPerSecond = 5

/** Pictures keep arriving, but the provider is unreachable. */
async function providerAway(rig: Rig, seconds: number): Promise<{ seconds: number; incomplete: number }> {
  const { generator, receiver, provider, sql } = rig
  const requests = awayPerSecond * seconds
  await generator.run({ url: receiver.webhooksUrl, connections: 4, requests: 50, kind: 'image', perSecond: 50 })
  await delay(2000)
  await provider.order({ away: true })
  say(`the provider is away for ${seconds} s`)
  const order = { connections: 4, requests, kind: 'image' as const, perSecond: awayPerSecond, withIds: true }
  const { sent } = await generator.run({ url: receiver.webhooksUrl, ...order })
  const ids = sent.map(({ requestId }) => requestId)
  await provider.order({ away: false, answerMs: 20 })
  const backAt = performance.now()
  const incompleteOf = async () => {
    const [row] = await sql<{ n: number }[]>`
      select count(*)::int as n from unnest(${ids}::uuid[]) as i (id) where not exists (
        select from mediadock.results where request_id = i.id and media_complete)`
    return row?.n ?? NaN
  }
  const incomplete = await incompleteOf()
  const limit = (seconds + giveUpMs / 1000) * 1000
  while ((await incompleteOf()) > incomplete * 0.05) {
    if (performance.now() - backAt > limit) return { seconds: Infinity, incomplete }
    await delay(100)
  }
  const took = (performance.now() - backAt) / 1000
  say(`the provider is back: 95 % of ${incomplete} complete after ${took.toFixed(1)} s`)
  return { seconds: took, incomplete }
}
