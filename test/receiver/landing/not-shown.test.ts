import { randomUUID } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

type Variant = {
  name: string
  /** Only in a result, where its shape is not shown; else in a webhook too. */
  in?: 'result'
  output: object
  /** What `results` keeps of it, where that is not all. */
  kept?: object
  media?: object[]
  /** It contradicts the specification. */
  refused?: true
}
const file = path.resolve(import.meta.dirname, 'golden/outputs.json')
const variants: Variant[] = JSON.parse(fs.readFileSync(file, 'utf8'))
const usable = variants.filter(({ refused }) => refused !== true)
const wrong = variants.filter(({ refused }) => refused === true)

describe('outputs that the specification does not show', () => {
  let database: TestDatabase
  let receiver: TestReceiver
  let stand: ProviderStand

  beforeAll(async () => {
    const its = await withReceiver({ stand: true })
    ;({ database, receiver, stand } = its)
    return its.stop
  })

  const notify = async (requestId: string, output: object) => {
    const payload = { model: 'm', output, cost: 1 }
    const body = Buffer.from(JSON.stringify({ request_id: requestId, status: 'OK', payload }))
    return (await deliver(receiver.webhookUrl, body)).json
  }
  const rowOf = async (requestId: string) =>
    (await database.sql`select output, media_complete from mediadock.results where request_id = ${requestId}`)[0]
  const mediaOf = (requestId: string) => database.sql`
    select kind, url, duration_seconds from mediadock.media where request_id = ${requestId} order by position`
  /** Tracks a request that the provider answers with this. */
  const poll = async (requestId: string, answer: object, status = 200) => {
    stand.answer((_id, _req, res) => json(res, status, answer))
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    return receiver.deps.background.reconcileOne(requestId)
  }

  it.each(usable)('lands from a result: $name', async ({ output, kept = output, media }) => {
    const requestId = randomUUID()
    await poll(requestId, { ...imageResult(requestId), output, logs: [{ at: 1, text: 'done' }], seed: 7 })
    expect(await rowOf(requestId)).toEqual({ output: kept, media_complete: true })
    expect(await mediaOf(requestId)).toEqual(media)
  })

  it.each(usable.filter((one) => one.in === undefined))(
    'lands from a webhook: $name',
    async ({ output, kept = output, media }) => {
      const requestId = randomUUID()
      expect(await notify(requestId, output)).toEqual({ status: 'accepted' })
      const row = await eventually(() => rowOf(requestId))
      expect(row).toEqual({ output: kept, media_complete: false })
      expect(await mediaOf(requestId)).toEqual(media)
    },
  )

  it.each(wrong)('refuses $name', async ({ output, ...variant }) => {
    const requestId = randomUUID()
    if (variant.in === undefined) expect(await notify(randomUUID(), output)).toEqual({ status: 'parked' })
    await poll(requestId, { ...imageResult(requestId), output })
    expect((await rowOf(requestId))?.['output']).toBeNull()
  })

  it.each([
    ['texts', ['one', 'two']],
    ['objects', [{ at: '2026-01-01T00:00:00Z', message: 'one', level: { name: 'info' } }]],
    ['one text', 'one\ntwo'],
    ['null', null],
    ['missing', undefined],
  ])('reads the progress of a request whose logs are %s', async (_what, logs) => {
    const requestId = randomUUID()
    const body = { request_id: requestId, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs, eta: 3 }
    expect(await poll(requestId, body, 202)).toBe('running')
    const [row] = await database.sql`select status, progress from mediadock.results where request_id = ${requestId}`
    expect(row).toEqual({ status: 'IN_PROGRESS', progress: 40 })
  })

  it.each([
    [2 ** 53 - 1, 2 ** 31 - 1],
    [null, null],
  ])('shows the place %s in the queue as %s, since its column is an integer', async (queue_position, shown) => {
    const requestId = randomUUID()
    const body = { request_id: requestId, status: 'IN_QUEUE', queue_position, progress: 0, logs: [] }
    expect(await poll(requestId, body, 202)).toBe('running')
    const [row] = await database.sql`select queue_position from mediadock.results where request_id = ${requestId}`
    expect(row).toEqual({ queue_position: shown })
  })
})
