import { randomUUID } from 'node:crypto'
import type { Sql } from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { untilInboxIsEmpty } from '../chaos/books.ts'
import { long } from '../chaos/length.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import { shuffled, withSender, type Outgoing } from '../chaos/sender.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand } from '../support/provider-stand.ts'
import { failed, okAudio, okImage, okVideo } from '../support/webhooks.ts'

const count = long ? 5000 : 180
const waitMs = long ? 300_000 : 60_000

const fates = ['never', 'twice', 'late'] as const
type Fate = (typeof fates)[number]

/** The ends at the provider, in turn. CANCELED has no webhook, so it is used only for requests without one. */
const ends = ['one picture', 'four pictures', 'video', 'audio', 'failed'] as const
type End = (typeof ends)[number] | 'canceled'

type Tracked = { requestId: string; fate: Fate; end: End; outgoing: Outgoing }

function make(at: number): Tracked {
  const requestId = randomUUID()
  const fate = fates[at % 3] ?? 'never'
  const nth = Math.floor(at / 3)
  const end = fate === 'never' && nth % 6 === 5 ? 'canceled' : (ends[nth % 5] ?? 'failed')
  // One late webhook in ten says the opposite of what the provider then knows.
  const lies = fate === 'late' && nth % 10 === 0
  const { body } = bodyOf(requestId, lies ? (end === 'failed' ? 'audio' : 'failed') : end)
  return { requestId, fate, end, outgoing: { webhookId: randomUUID(), requestId, body } }
}

function bodyOf(requestId: string, end: End) {
  if (end === 'video') return okVideo(requestId)
  if (end === 'audio') return okAudio(requestId)
  return end === 'failed' ? failed(requestId) : okImage(requestId)
}

/** The provider's own word on it, in every poll. */
function resultOf({ requestId, end }: Tracked): object {
  const result = imageResult(requestId, end === 'four pictures' ? 4 : 1)
  if (end === 'failed')
    return {
      request_id: requestId,
      status: 'FAILED',
      error: { code: 'GENERATION_FAILED', message: 'the model gave up' },
      cost: 0,
    }
  if (end === 'canceled') return { request_id: requestId, status: 'CANCELED' }
  if (end === 'video')
    return {
      ...result,
      output: { video: { url: `https://media.test/${requestId}.mp4`, width: 640, height: 360, duration: 4 } },
    }
  return end === 'audio'
    ? { ...result, output: { audio: { url: `https://media.test/${requestId}.mp3`, duration: 9 } } }
    : result
}

const endState = (end: End) => (end === 'failed' ? 'FAILED' : end === 'canceled' ? 'CANCELED' : 'COMPLETED')
const endMedia = (end: End) => (end === 'failed' || end === 'canceled' ? 0 : end === 'four pictures' ? 4 : 1)

type Row = {
  request_id: string
  status: string
  media_complete: boolean
  media: number
  source: string
  polls: number
  contradictions: number
  next_poll_at: Date | null
}

async function rowsOf(sql: Sql): Promise<Map<string, Row>> {
  const rows = await sql<Row[]>`
    select request_id, status, media_complete, source, polls, next_poll_at,
      (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media,
      (select count(*)::int from mediadock.deliveries d where d.request_id = r.request_id and 'contradiction' = any(flags)) as contradictions
    from mediadock.requests r`
  return new Map(rows.map((row) => [row.request_id, row]))
}

it(
  `${count} requests all end correctly: a third of the webhooks never arrives, a third arrives twice, a third late`,
  { timeout: 2 * waitMs },
  async () => {
    const { url, sql } = await withTestDatabase()
    const all = Array.from({ length: count }, (_, at) => make(at))
    const byId = new Map(all.map((one) => [one.requestId, one]))
    const of = (fate: Fate) => all.filter((one) => one.fate === fate)

    const stand = await startProviderStand()
    onTestFinished(() => stand.close())
    stand.answer((id, _req, res) => {
      const tracked = byId.get(id)
      return tracked ? json(res, 200, resultOf(tracked)) : json(res, 404, {})
    })
    const notices = new Map<string, string[]>()
    await sql.listen('mediadock_results', (payload) => {
      const { request_id, status, media_complete } = JSON.parse(payload)
      notices.set(request_id, [...(notices.get(request_id) ?? []), `${status} ${media_complete}`])
    })
    const receiver = await withReceiverProcess(url, {
      GENERATION_API_URL: stand.url,
      FETCH_RATE_PER_MINUTE: '1000000',
      STUCK_AFTER_SECONDS: '2',
      RECONCILE_CRON: '* * * * * *',
    })
    const sender = withSender(receiver.url, 16)
    const started = performance.now()

    await sql`insert into mediadock.requests ${sql(all.map(({ requestId }) => ({ request_id: requestId, key_name: 'live', model: 'aurora-image' })))}`
    const twice = of('twice').map(({ outgoing }) => outgoing)
    const answers = await sender.sendAll(shuffled([...twice, ...twice]))
    expect(answers.filter(({ status }) => status !== 200)).toEqual([])
    const isOver = async (tracked: readonly Tracked[]) => {
      const rows = await rowsOf(sql)
      return tracked.every(
        ({ requestId }) => rows.get(requestId)?.media_complete === true && rows.get(requestId)?.next_poll_at === null,
      )
    }
    await eventually(() => isOver(of('late')), waitMs)
    const late = await sender.sendAll(shuffled(of('late').map(({ outgoing }) => outgoing)))
    expect(late.filter(({ outcome }) => outcome !== 'accepted')).toEqual([])
    await untilInboxIsEmpty(sql, waitMs)
    await eventually(() => isOver(all), waitMs)
    const seconds = (performance.now() - started) / 1000

    const rows = await rowsOf(sql)
    report(all, rows, { seconds, calls: stand.calls.length })
    expect(rows.size).toBe(count)
    for (const { requestId, end } of all) {
      expect(rows.get(requestId)).toMatchObject({ status: endState(end), media: endMedia(end), media_complete: true })
      // A notice when it changed, never twice the same, and last of all how it stands.
      const ofRequest = notices.get(requestId) ?? []
      expect(ofRequest.at(-1)).toBe(`${endState(end)} true`)
      expect(new Set(ofRequest).size).toBe(ofRequest.length)
    }
    // Each was called for by its poll, and once more where a webhook of a picture or video came.
    expect(stand.calls.length).toBeLessThanOrEqual(2 * count)
    const contradicted = of('late').filter((_, nth) => nth % 10 === 0)
    for (const { requestId } of contradicted) expect(rows.get(requestId)?.contradictions).toBe(1)
  },
)

/** How each third did. */
function report(
  all: readonly Tracked[],
  rows: ReadonlyMap<string, Row>,
  { seconds, calls }: { seconds: number; calls: number },
): void {
  const lines = fates.map((fate) => {
    const these = all.filter((one) => one.fate === fate).flatMap(({ requestId }) => rows.get(requestId) ?? [])
    const landedBy = (source: string) => these.filter((row) => row.source === source).length
    const sum = (pick: (row: Row) => number) => these.reduce((total, row) => total + pick(row), 0)
    return `  ${fate.padEnd(6)} ${these.length} requests: ${landedBy('webhook')} landed by webhook, ${landedBy('reconciler')} by reconciler; ${sum((row) => row.polls)} polls, ${sum((row) => row.contradictions)} contradictions`
  })
  process.stdout.write(
    [`${all.length} requests ended in ${seconds.toFixed(1)} s with ${calls} calls to the provider`, ...lines, ''].join(
      '\n',
    ),
  )
}
