import net from 'node:net'
import { sharedNowMs, type Load, type LoadOrder, type Sent } from './load.ts'
import { bodyBytes, signedRequest, type Signed } from './signed-requests.ts'

/**
 * The load generator. Requests are signed ahead of time and written as they are on raw sockets, one in
 * flight on each; of an answer it looks at the first and the last bytes.
 */
process.on('message', (order: LoadOrder) => {
  measure(order).then(
    (load) => process.send?.({ load }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.on('disconnect', () => process.exit(0))

/** Signed before the clock starts: half a gigabyte. What a longer run needs beyond that is signed on the way, as fast as it is sent. */
const maxSignedAhead = 300_000
const lastAnswersMs = 10_000
const expectedStart = Buffer.from('HTTP/1.1 200 ')
const expectedEnd = Buffer.from('{"status":"accepted"}')

async function measure({
  url,
  connections,
  requests,
  kind = 'direct',
  perSecond,
  withIds,
  mayBreak,
}: LoadOrder): Promise<Load> {
  const signed: (Signed | undefined)[] = []
  const sent: Sent[] = []
  const signNext = () => signed.push(signedRequest(kind, signed.length, Math.floor(Date.now() / 1000)))
  while (signed.length < Math.min(requests, maxSignedAhead)) signNext()
  const sockets = await Promise.all(Array.from({ length: connections }, () => connect(url)))

  const latenciesMs = new Float64Array(requests)
  const counts = { acknowledged: 0, refused: 0, broken: 0, inTime: 0 }
  const { promise: done, resolve, reject } = Promise.withResolvers<void>()
  let firstRefusal: string | undefined
  const isOpenLoop = perSecond !== undefined
  /** The one that rested longest is next, so that at a low rate none rests until it is closed. */
  const free: Lane[] = []
  let open = connections
  let next = 0
  /** How many should have gone by now. */
  let due = isOpenLoop ? 0 : requests
  const sharedOffsetMs = sharedNowMs() - performance.now()
  const started = performance.now()
  const dueAt = (index: number) => (isOpenLoop ? started + (index * 1000) / perSecond : performance.now())
  const allDueAt = isOpenLoop ? started + (requests * 1000) / perSecond : Infinity

  const settle = (end: 'acknowledged' | 'refused' | 'broken') => {
    counts[end] += 1
    if (end !== 'acknowledged' && !mayBreak && !isOpenLoop)
      reject(new Error(`an answer was ${end}${firstRefusal ? `: ${firstRefusal}` : ''}`))
    if (counts.acknowledged + counts.refused + counts.broken === requests || (open === 0 && isOpenLoop)) resolve()
  }
  const send = (lane: Lane) => {
    const request = signed[next]
    if (request === undefined) return
    lane.index = next
    lane.sentAt = dueAt(next)
    if (withIds)
      sent[next] = { requestId: request.requestId, dueAtMs: lane.sentAt + sharedOffsetMs, acknowledged: false }
    signed[next] = undefined
    next += 1
    lane.socket.write(request.bytes)
    if (signed.length < requests) signNext()
  }
  const answered = (lane: Lane, isAccepted: boolean) => {
    const now = performance.now()
    const one = sent[lane.index]
    if (isAccepted && one) one.acknowledged = true
    lane.index = -1
    if (isAccepted) {
      latenciesMs[counts.acknowledged] = now - lane.sentAt
      if (now <= allDueAt) counts.inTime += 1
    }
    if (next < due) send(lane)
    else free.push(lane)
    settle(isAccepted ? 'acknowledged' : 'refused')
  }
  const lanes = sockets.map((socket): Lane => ({ socket, index: -1, sentAt: 0, pending: undefined }))
  for (const lane of lanes) {
    lane.socket
      .on('data', (chunk: Buffer) => {
        if (lane.index < 0) return
        const answer = lane.pending === undefined ? chunk : Buffer.concat([lane.pending, chunk])
        const verdict = judge(answer)
        lane.pending = verdict === 'partial' ? answer : undefined
        if (verdict === 'refused') firstRefusal ??= answer.toString('latin1').slice(0, 600)
        if (verdict !== 'partial') answered(lane, verdict === 'accepted')
      })
      .on('error', () => {})
      .on('close', () => {
        open -= 1
        const at = free.indexOf(lane)
        if (at >= 0) free.splice(at, 1)
        if (lane.index >= 0) settle('broken')
        else if (open === 0) resolve()
      })
  }
  const cpuBefore = process.cpuUsage()
  const offer = () => {
    // The first is due at the start.
    const dueByNow = isOpenLoop ? Math.floor(((performance.now() - started) / 1000) * perSecond) + 1 : requests
    due = Math.min(requests, dueByNow)
    for (let lane = next < due ? free.shift() : undefined; lane; lane = next < due ? free.shift() : undefined)
      send(lane)
  }
  free.push(...lanes)
  offer()
  const ticks = isOpenLoop ? setInterval(offer, 1) : undefined
  // Where the offered rate is beyond what is answered, the rest need not be waited for.
  const tooLate = isOpenLoop ? setTimeout(resolve, allDueAt - started + lastAnswersMs) : undefined
  try {
    await done
  } finally {
    clearInterval(ticks)
    clearTimeout(tooLate)
    for (const { socket } of lanes) socket.removeAllListeners('close').destroy()
  }
  const { user, system } = process.cpuUsage(cpuBefore)
  const seconds = (performance.now() - started) / 1000
  const latencies = latenciesMs.subarray(0, counts.acknowledged).sort()
  const at = (share: number) => latencies[Math.min(Math.floor(latencies.length * share), latencies.length - 1)] ?? NaN
  return {
    ...counts,
    firstRefusal,
    broken: requests - counts.acknowledged - counts.refused,
    seconds,
    perSecond: counts.acknowledged / seconds,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    bodyBytes: counts.acknowledged * bodyBytes,
    cpuSeconds: (user + system) / 1e6,
    sent,
  }
}

/** One connection; `index` is that of the request in flight, -1 without one. */
type Lane = { socket: net.Socket; index: number; sentAt: number; pending: Buffer | undefined }

const lengthPattern = /\r\ncontent-length: (\d+)\r\n/i

function judge(answer: Buffer): 'accepted' | 'refused' | 'partial' {
  const start = answer.length - expectedEnd.length
  if (start > 0 && answer.compare(expectedEnd, 0, expectedEnd.length, start) === 0) {
    return answer.compare(expectedStart, 0, expectedStart.length, 0, expectedStart.length) === 0
      ? 'accepted'
      : 'refused'
  }
  const text = answer.toString('latin1')
  const headEnd = text.indexOf('\r\n\r\n')
  const length = lengthPattern.exec(text)?.[1]
  return headEnd < 0 || length === undefined || text.length < headEnd + 4 + Number(length) ? 'partial' : 'refused'
}

function connect(url: string): Promise<net.Socket> {
  const { hostname, port } = new URL(url)
  const { promise, resolve, reject } = Promise.withResolvers<net.Socket>()
  const socket = net.connect({ host: hostname, port: Number(port), noDelay: true })
  socket.once('error', reject).once('connect', () => resolve(socket.off('error', reject)))
  return promise
}
