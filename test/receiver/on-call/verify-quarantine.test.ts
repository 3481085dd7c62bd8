import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { verifyQuarantine } from '../../../src/receiver/on-call/verify-quarantine.ts'
import { eventually } from '../../support/eventually.ts'
import { defaultSource } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

it('counts a delivery as known if it was sent again and accepted meanwhile', async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  const [sentAgain, other] = [failed().body, failed().body]
  const webhookId = randomUUID()
  for (const [body, id] of [
    [sentAgain, webhookId],
    [sentAgain, webhookId],
    [other, randomUUID()],
  ] as const)
    await deliver(receiver.webhookUrl, body, { webhookId: id, secret: 'whsec_new' })
  await eventually(async () => (await sql`select from mediadock.quarantine`).length === 3)
  const secrets = [{ name: 'live', signingSecret: 'whsec_new' }]
  const keys = () => ({ ...receiver.deps.keys(), defaultSource: { ...defaultSource, secrets } })
  await deliver(receiver.webhookUrl, sentAgain, { webhookId })
  const told: unknown[] = []
  const verified = await verifyQuarantine({ ...receiver.deps, keys }, { onAccepted: (ids) => told.push(ids.length) })
  expect(verified).toEqual({ checked: 3, accepted: 3, refused: 0 })
  expect(told).toEqual([2])
})

it('is verified again in pages of bounded bytes', async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  const padding = Buffer.alloc(1_000_000, ' ')
  for (let n = 0; n < 6; n += 1)
    await deliver(receiver.webhookUrl, Buffer.concat([failed().body, padding]), { secret: 'whsec_new' })
  await eventually(async () => (await sql`select from mediadock.quarantine`).length === 6)
  const pages: number[] = []
  const secrets = [{ name: 'new', signingSecret: 'whsec_new' }]
  const keys = () => ({ ...receiver.deps.keys(), defaultSource: { ...defaultSource, secrets } })
  const verified = await verifyQuarantine({ ...receiver.deps, keys }, { onAccepted: (ids) => pages.push(ids.length) })
  expect(verified).toEqual({ checked: 6, accepted: 6, refused: 0 })
  expect(Math.max(...pages)).toBeLessThan(5)
})

it('judges the window by the time of arrival, and not by the present time', async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  await deliver(receiver.webhookUrl, failed().body, { secret: 'whsec_new' })
  await eventually(async () => (await sql`select from mediadock.quarantine`).length === 1)
  const secrets = [{ name: 'new', signingSecret: 'whsec_new' }]
  const keys = () => ({ ...receiver.deps.keys(), defaultSource: { ...defaultSource, secrets } })
  // It arrived 301 s after it was signed.
  await sql`update mediadock.quarantine set arrived_at = arrived_at + interval '302 s'`
  expect(await verifyQuarantine({ ...receiver.deps, keys })).toEqual({ checked: 1, accepted: 0, refused: 1 })
  // It arrived in time, and is verified an hour later.
  await sql`update mediadock.quarantine set arrived_at = arrived_at - interval '302 s'`
  receiver.setNow(new Date(Date.now() + 3_600_000))
  expect(await verifyQuarantine({ ...receiver.deps, keys })).toEqual({ checked: 1, accepted: 1, refused: 0 })
})
