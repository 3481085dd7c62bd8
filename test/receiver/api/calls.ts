import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send, type HttpAnswer } from '../../support/http.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, type Delivery, type Sample } from '../../support/webhooks.ts'

export type Answer = HttpAnswer & {
  // Tests say themselves what they expect of a body.
  // oxlint-disable-next-line typescript/no-explicit-any
  json: any
}

export type Call = { headers?: Record<string, string>; body?: unknown; raw?: string }

/** One call of the API as another program makes it. */
export async function call(
  receiver: TestReceiver,
  operation: string,
  { headers = {}, body, raw }: Call = {},
): Promise<Answer> {
  const [method = 'GET', path = ''] = operation.split(' ')
  const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body))
  const answer = await send(`${receiver.internalUrl.replace(/\/$/, '')}${path}`, method, {
    headers: { ...(sent !== undefined && { 'content-type': 'application/json' }), ...headers },
    body: sent,
  })
  const isJson = answer.headers.get('content-type')?.startsWith('application/json') === true
  return { ...answer, json: isJson && answer.text !== '' ? JSON.parse(answer.text) : undefined }
}

/** Returns the ids of all pages of a list, by following next_cursor. */
export async function follow(receiver: TestReceiver, path: string): Promise<unknown[]> {
  const ids: unknown[] = []
  let cursor: string | null = null
  do {
    const more: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
    const { status, json, text } = await call(receiver, `GET ${path}${more}`)
    if (status !== 200) throw new Error(`${status} ${text}`)
    ids.push(...json.data.map(({ id }: { id: unknown }) => id))
    cursor = json.next_cursor
  } while (cursor !== null)
  return ids
}

/** Delivers a webhook and waits until it is processed and its arrival is logged; answers the delivery's id. */
export async function deliverAndSettle(
  to: { receiver: TestReceiver; database: TestDatabase },
  { body }: Sample,
  delivery: Delivery & { webhookId: string },
): Promise<string> {
  const { webhookId } = delivery
  const { sql } = to.database
  const logged = async () =>
    Number((await sql`select count(*) as n from mediadock.arrivals where webhook_id = ${webhookId}`)[0]?.['n'])
  const before = await logged()
  await deliver(to.receiver.webhookUrl, body, delivery)
  await eventually(async () => (await logged()) > before)
  return eventually(async () => {
    const [row] = await sql`select d.id from mediadock.deliveries d left join mediadock.inbox i on i.delivery_id = d.id
      where webhook_id = ${webhookId} and i.delivery_id is null order by received_at desc limit 1`
    return row?.['id'] ?? undefined
  })
}
