import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { deliveryId } from '../../src/receiver/domain/delivery.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio, okImage, okVideo } from '../support/webhooks.ts'
import { untilAllLanded } from './books.ts'
import { long, roundsOf } from './length.ts'
import { inTable } from './table.ts'

const rounds = long ? roundsOf(1000) : 24
const abreast = 8
const settledWithinMs = 30_000

const kinds = [
  { webhook: okImage, media: 4, result: (id: string) => imageResult(id, 4) },
  {
    webhook: okAudio,
    media: 1,
    result: (id: string) => ({
      ...imageResult(id),
      output: { audio: { url: `https://media.test/${id}.mp3`, duration: 9 } },
    }),
  },
  {
    webhook: okVideo,
    media: 1,
    result: (id: string) => ({
      ...imageResult(id),
      output: { video: { url: `https://media.test/${id}.mp4`, width: 640, height: 360, duration: 4 } },
    }),
  },
  {
    webhook: failed,
    media: 0,
    result: (id: string) => ({
      request_id: id,
      status: 'FAILED',
      error: { code: 'GENERATION_FAILED', message: 'the model gave up' },
      cost: 0,
    }),
  },
] as const

it(
  `webhook, reconciler and replay of one request at one instant, on two receivers, ${rounds} times, have one effect`,
  { timeout: 300_000 },
  async () => {
    await inTable(
      'webhook, reconciler and replay of one request at one instant, two receivers',
      'one effect, one NOTIFY for each change',
      async () => {
        const { url, sql } = await withTestDatabase(preferredServer)
        const byId = new Map<string, (typeof kinds)[number]>()
        const stand = await startProviderStand()
        onTestFinished(() => stand.close())
        stand.answer((id, _req, res) => {
          const kind = byId.get(id)
          return kind ? json(res, 200, kind.result(id)) : json(res, 404, {})
        })
        const receivers = await Promise.all(
          [1, 2].map(() => startTestReceiver({ databaseUrl: url, providerUrl: stand.url })),
        )
        for (const { stop } of receivers) onTestFinished(stop)
        const notices = new Map<string, string[]>()
        await sql.listen('mediadock_results', (payload) => {
          const { request_id: id, status, media_complete: complete } = JSON.parse(payload)
          notices.set(id, [...(notices.get(id) ?? []), `${status} ${complete}`])
        })
        const acknowledged: string[] = []
        const post = async (at: number, path: string) => {
          const response = await fetch(`${receivers[at % 2]?.internalUrl}api/${path}`, { method: 'POST' })
          await response.arrayBuffer()
          return response.status
        }
        const replayed = async (at: number, id: string) => {
          for (let tries = 1; ; tries += 1) {
            const status = await post(at, `deliveries/${id}/replay`)
            if (status !== 404 || tries === 500) return status
          }
        }
        const one = async (at: number) => {
          const kind = kinds[at % kinds.length] ?? kinds[0]
          const { requestId, body } = kind.webhook()
          const webhookId = randomUUID()
          byId.set(requestId, kind)
          await sql`insert into mediadock.requests (request_id, key_name, model) values (${requestId}, 'live', 'aurora-image')`
          const soon = () => delay(Math.random() * 8)
          const [webhook, poll, replay] = await Promise.all([
            soon().then(() => deliver(receivers[at % 2]?.webhookUrl ?? '', body, { webhookId })),
            soon().then(() => post(at + 1, `requests/${requestId}/reconcile`)),
            soon().then(() => replayed(at + (at % 3), deliveryId(webhookId, body))),
          ])
          expect([webhook.status, poll, replay]).toEqual([200, 200, 200])
          acknowledged.push(requestId)
        }
        let next = 0
        await Promise.all(
          Array.from({ length: abreast }, async () => {
            for (let at = next++; at < rounds; at = next++) await one(at)
          }),
        )
        await untilAllLanded(sql, settledWithinMs)
        const isOver = async () =>
          (await sql`select from mediadock.requests where confirmed_at is null limit 1`).length === 0
        await eventually(isOver, settledWithinMs).catch(() => {})
        await delay(200)
        const rows = new Map(
          (
            await sql<{ request_id: string; status: string; complete: boolean; media: number; deliveries: number }[]>`
          select request_id, status, media_complete as complete,
            (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media,
            (select count(*)::int from mediadock.deliveries d where d.request_id = r.request_id) as deliveries
          from mediadock.results r`
          ).map((row) => [row.request_id, row]),
        )
        const endOf = (id: string) => (byId.get(id)?.webhook === failed ? 'FAILED' : 'COMPLETED')
        const lost = acknowledged.filter((id) => {
          const row = rows.get(id)
          return row?.status !== endOf(id) || !row.complete || row.media !== byId.get(id)?.media
        })
        const doubled = acknowledged.filter((id) => {
          const heard = notices.get(id) ?? []
          return (
            rows.get(id)?.deliveries !== 1 ||
            heard.at(-1) !== `${endOf(id)} true` ||
            new Set(heard).size !== heard.length
          )
        })
        const notified = [...notices.values()].reduce((sum, { length }) => sum + length, 0)
        return {
          rounds,
          acknowledged: acknowledged.length,
          lost: lost.length,
          doubled: doubled.length,
          silenceMs: undefined,
          measured: `${notified} changes, each notified once`,
          met: lost.length === 0 && doubled.length === 0 && acknowledged.length === rounds,
        }
      },
    )
  },
)
