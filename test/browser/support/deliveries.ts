import { deliverAndSettle } from '../../receiver/api/calls.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json } from '../../support/provider-stand.ts'
import { sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, nowSeconds, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

export type Deliveries = {
  database: TestDatabase
  receiver: TestReceiver
  /** Of the deliveries that every test finds: one that landed, one that failed, one parked, one with flags. */
  known: {
    landed: string
    failed: string
    parked: string
    image: ReturnType<typeof okImage>
    error: ReturnType<typeof failed>
  }
  stop: () => Promise<void>
}

/** A receiver with some deliveries, and arrivals that were refused. */
export async function startDeliveries(): Promise<Deliveries> {
  const its = await withReceiver({ stand: true })
  its.stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
  const { receiver, database, stop } = its
  const [image, error] = [okImage(), failed()]
  const landed = await deliverAndSettle(its, image, { webhookId: 'wh_landed', t: nowSeconds() - 7 })
  const sandbox = { secret: sandboxKey.signing_secret }
  const known = {
    landed,
    failed: await deliverAndSettle(its, error, { webhookId: 'wh_failed', ...sandbox }),
    parked: await deliverAndSettle(
      its,
      { requestId: '', body: Buffer.from('not json at all') },
      { webhookId: 'wh_parked' },
    ),
    image,
    error,
  }
  await deliverAndSettle(its, okAudio(error.requestId), { webhookId: 'wh_contradicts', ...sandbox })
  await deliver(receiver.webhookUrl, image.body, { webhookId: 'wh_landed' })
  await deliver(receiver.webhookUrl, okImage().body, { webhookId: 'wh_forged', secret: 'whsec_forged' })
  await deliver(receiver.webhookUrl, okImage().body, { webhookId: 'wh_old', t: nowSeconds() - 301 })
  await eventually(async () => (await database.sql`select from mediadock.arrivals`).length >= 7)
  return { database, receiver, known, stop }
}
