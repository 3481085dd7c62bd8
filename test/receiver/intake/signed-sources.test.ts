import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { senders } from '../../../src/commands/trigger.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { falKeyOf, falKeySetOf } from '../../../src/wire/fal-signature.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { json } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

/* Every kind that signs, each at a source of its own: bytes and ids as anyone may send them again. */

const kinds = ['fal', 'gemini', 'openrouter-video', 'replicate', 'standard-webhooks']
const secret = Buffer.alloc(32, 7).toString('base64')
const secretOf = (kind: string) => (kind === 'openrouter-video' || kind === 'fal' ? secret : `whsec_${secret}`)

let database: TestDatabase
let receiver: TestReceiver
beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver } = its)
  its.stand.answer((_id, _req, res) => json(res, 200, falKeySetOf(falKeyOf(Buffer.from(secret, 'base64')))))
  const sources = kinds.map((kind) => ({
    name: kind,
    kind,
    keys: [
      {
        name: `${kind}-key`,
        ...(kind !== 'standard-webhooks' && { api_key: 'x' }),
        ...(kind !== 'fal' && { signing_secret: secretOf(kind) }),
      },
    ],
    ...(kind === 'fal' && { account: 'me', key_set_url: its.stand.url }),
  }))
  receiver.setKeys(withSources(keysOf(liveKey, sandboxKey), JSON.stringify(sources)))
  await eventually(() => receiver.deps.keys().sources.get('fal')?.secrets.length === 1)
  return its.stop
})

type Sent = { kind: string; id: string; jobId: string; body: Buffer; ageSeconds?: number }

async function post({ kind, id, jobId, body, ageSeconds = 0 }: Sent) {
  const timestampSeconds = Math.floor(Date.now() / 1000) - ageSeconds
  const signing = { id, jobId, account: 'me', secret: secretOf(kind), timestampSeconds }
  const headers = { 'content-type': 'application/json', ...senders[kind]?.headers?.(body, signing) }
  const { status, text } = await send(`${receiver.webhookUrl}/${kind}`, 'POST', { headers, body })
  return [status, JSON.parse(text).status ?? JSON.parse(text).error.code]
}

const newJob = (kind: string) => senders[kind]?.jobIdOf?.(randomUUID()) ?? randomUUID()
const bodyOf = (kind: string, jobId: string, ending: 'ok' | 'error' = 'ok') =>
  Buffer.from(JSON.stringify(senders[kind]?.body(jobId, ending)))
/** The deliveries under a webhook id, once none of them waits any more. */
const deliveriesOf = (webhookId: string) =>
  eventually(async () => {
    const rows = await database.sql`
      select source_name, parked_reason, flags, body,
        exists (select from mediadock.inbox where delivery_id = d.id) as pending
      from mediadock.deliveries d where webhook_id = ${webhookId} order by received_at`
    return !rows.some(({ pending }) => pending) && rows.map(({ pending: _pending, ...row }) => row)
  })

describe.each(kinds)('%s', (kind) => {
  it('a webhook that is sent again is a duplicate, also with a newer signature', async () => {
    const jobId = newJob(kind)
    const id = kind === 'fal' ? jobId : randomUUID()
    const body = bodyOf(kind, jobId)
    expect(await post({ kind, id, jobId, body, ageSeconds: 60 })).toEqual([200, 'accepted'])
    expect(await post({ kind, id, jobId, body, ageSeconds: 60 })).toEqual([200, 'duplicate'])
    expect(await post({ kind, id, jobId, body })).toEqual([200, 'duplicate'])
    expect(await post({ kind, id, jobId, body, ageSeconds: 301 })).toEqual([401, 'invalid_signature'])
    expect(await deliveriesOf(id)).toEqual([{ source_name: kind, parked_reason: null, flags: [], body }])
  })

  it('an id that comes again with another body is another delivery, which says so unless it is a hint', async () => {
    const jobId = newJob(kind)
    const id = kind === 'fal' ? jobId : randomUUID()
    const isHint = kind === 'gemini'
    const other = isHint ? bodyOf(kind, newJob(kind)) : bodyOf(kind, jobId, 'error')
    expect(await post({ kind, id, jobId, body: bodyOf(kind, jobId) })).toEqual([200, 'accepted'])
    await deliveriesOf(id)
    expect(await post({ kind, id, jobId, body: other })).toEqual([200, 'accepted'])
    const rows = await deliveriesOf(id)
    expect(rows.map(({ flags, parked_reason }) => [flags.includes('id_reused'), parked_reason])).toEqual([
      [false, null],
      [!isHint, null],
    ])
  })

  it.each([
    ['of JSON with a byte that is not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), 'not_utf8'],
    ['of a lone NUL', Buffer.from([0]), 'not_json'],
  ])('a body %s is authentic, so it is kept to the byte and parked', async (_, body, reason) => {
    const jobId = newJob(kind)
    const id = kind === 'fal' ? jobId : randomUUID()
    expect(await post({ kind, id, jobId, body })).toEqual([200, 'parked'])
    expect(await deliveriesOf(id)).toEqual([{ source_name: kind, parked_reason: reason, flags: [], body }])
  })
})
