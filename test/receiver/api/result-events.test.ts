import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { imageResult, json as answerJson } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

type Event = { name: string; data: Record<string, unknown> }

/** Reads events until the stream ends; `onEvent` is called after each. */
async function readEvents(
  receiver: TestReceiver,
  id: string,
  onEvent: (event: Event) => Promise<void>,
): Promise<Event[]> {
  const response = await fetch(new URL(`/api/results/${id}/events`, receiver.internalUrl))
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  const events: Event[] = []
  let text = ''
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString()
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [first = '', second = ''] = text.slice(0, end).split('\n')
      text = text.slice(end + 2)
      if (!first.startsWith('event: ')) continue
      const event: Event = { name: first.slice(7), data: JSON.parse(second.slice(6)) }
      events.push(event)
      await onEvent(event)
    }
  }
  return events
}

async function started() {
  const its = await withReceiver({ stand: true, followsUp: true })
  onTestFinished(its.stop)
  const id = randomUUID()
  expect(await call(its.receiver, 'POST /api/requests', { body: { request_id: id, key_name: 'live' } })).toMatchObject({
    status: 201,
  })
  // Its progress is asked for a few seconds after it was tracked.
  await its.database
    .sql`update mediadock.requests set tracked_at = now() - interval '1 minute' where request_id = ${id}`
  return { ...its, id }
}

it('sends the progress that the provider reports, the first media and the end', async () => {
  const { receiver, stand, id } = await started()
  stand.answer((_id, _req, res) =>
    answerJson(res, 202, { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 74, logs: [] }),
  )
  const events = await readEvents(receiver, id, async ({ name, data }) => {
    if (name !== 'progress' || data['progress'] !== 74) return
    stand.answer((_id, _req, res) => answerJson(res, 200, imageResult(id, 2)))
    expect((await deliver(receiver.webhookUrl, okImage(id).body)).status).toBe(200)
  })
  const names = events.map(({ name }) => name)
  expect(names.filter((name) => name === 'first_media')).toHaveLength(1)
  expect([names[0], names.at(-1)]).toEqual(['queued', 'complete'])
  expect(events.at(-1)?.data).toMatchObject({
    result: { status: 'COMPLETED', progress: 100 },
    media: [{ position: 0 }, { position: 1 }],
  })
})

it('sends the place in the queue, and a failure', async () => {
  const { receiver, database, stand, id } = await started()
  stand.answer((_id, _req, res) =>
    answerJson(res, 202, { request_id: id, status: 'IN_QUEUE', queue_position: 3, progress: 0, logs: [] }),
  )
  const events = await readEvents(receiver, id, async ({ data }) => {
    if (data['queue_position'] !== 3) return
    expect(await database.sql`select progress, queue_position from mediadock.results where request_id = ${id}`).toEqual(
      [{ progress: 0, queue_position: 3 }],
    )
    expect((await deliver(receiver.webhookUrl, failed(id).body)).status).toBe(200)
  })
  expect(events.at(-1)).toMatchObject({ name: 'failed', data: { result: { status: 'FAILED', queue_position: null } } })
})

it('answers 404 for an unknown request', async () => {
  const { receiver } = await started()
  expect(await call(receiver, `GET /api/results/${randomUUID()}/events`)).toMatchObject({ status: 404 })
})
