import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { Pool } from 'undici'
import { onTestFinished } from 'vitest'
import { liveKey } from '../support/receiver.ts'
import { failed, headersFor, okAudio } from '../support/webhooks.ts'

export type Outgoing = {
  webhookId: string
  requestId: string
  body: Buffer
  /** Signed with it each time, if not with that of the usual key. */
  secret?: string
}
export type Answer = { status: number; outcome: string; retryAfter: string | undefined; tookMs: number }

/** Audio and errors in turn: what lands without a call to the provider. */
export function makeDeliveries(count: number): Outgoing[] {
  return Array.from({ length: count }, (_, index) => ({
    webhookId: randomUUID(),
    ...(index % 2 === 0 ? okAudio() : failed()),
  }))
}

export type Sender = {
  /** One delivery, signed now; rejects when the connection breaks. */
  send: (delivery: Outgoing) => Promise<Answer>
  /** Each delivery once, as many at a time as there are connections. */
  sendAll: (deliveries: readonly Outgoing[]) => Promise<Answer[]>
  /** As the provider does, only sooner: again until it is answered 200. Answers how many tries did not get that. */
  sendUntilAccepted: (
    deliveries: readonly Outgoing[],
    onAccepted: (delivery: Outgoing) => void,
  ) => Promise<{ broken: number; refused: number }>
}

const retryPauseMs = 20

export type Connecting = { connect: { ca: string }; localAddress: string }

export function withSender(url: string, connections: number, connecting: Partial<Connecting> = {}): Sender {
  const pool = new Pool(url, { connections, pipelining: 1, ...connecting })
  onTestFinished(() => pool.destroy())

  const send = async ({ webhookId, body, secret = liveKey.signing_secret }: Outgoing): Promise<Answer> => {
    const started = performance.now()
    const answer = await pool.request({
      method: 'POST',
      path: '/webhooks',
      headers: headersFor(body, { webhookId, secret }),
      body,
    })
    const json: unknown = await answer.body.json()
    const retryAfter = answer.headers['retry-after']
    return {
      status: answer.statusCode,
      outcome: wordOf(json),
      retryAfter: retryAfter?.toString(),
      tookMs: performance.now() - started,
    }
  }
  const inLanes = async (deliveries: readonly Outgoing[], one: (delivery: Outgoing) => Promise<void>) => {
    let next = 0
    const lane = async () => {
      for (let delivery = deliveries[next++]; delivery !== undefined; delivery = deliveries[next++]) await one(delivery)
    }
    await Promise.all(Array.from({ length: connections }, lane))
  }
  return {
    send,
    sendAll: async (deliveries) => {
      const answers: Answer[] = []
      await inLanes(deliveries, async (delivery) => void answers.push(await send(delivery)))
      return answers
    },
    sendUntilAccepted: async (deliveries, onAccepted) => {
      const tries = { broken: 0, refused: 0 }
      await inLanes(deliveries, async (delivery) => {
        for (;;) {
          const answer = await send(delivery).catch(() => undefined)
          if (answer?.status === 200) return onAccepted(delivery)
          tries[answer === undefined ? 'broken' : 'refused'] += 1
          await delay(retryPauseMs)
        }
      })
      return tries
    },
  }
}

/** `accepted`, `duplicate` … of a success, the code of an error. */
function wordOf(json: unknown): string {
  if (typeof json !== 'object' || json === null) return ''
  if ('status' in json) return String(json.status)
  return 'error' in json && typeof json.error === 'object' && json.error !== null && 'code' in json.error
    ? String(json.error.code)
    : ''
}

export function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}

export function countBy<T>(items: readonly T[], key: (item: T) => string | number): Record<string, number> {
  return Object.fromEntries([...Map.groupBy(items, key)].map(([word, group]) => [word, group.length]))
}
