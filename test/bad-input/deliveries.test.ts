import { createHmac, randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { long } from '../chaos/length.ts'
import { preferredServer, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { bodies, type BodyCase } from './cases/bodies.ts'
import { signatures, type SignatureCase } from './cases/signatures.ts'
import { webhookIds, type WebhookIdCase } from './cases/webhook-ids.ts'
import { exchange, heldBytes, type RawAnswer } from './raw.ts'

if (long) vi.setConfig({ testTimeout: 1_800_000 })

/** Sends every case of `cases/` over a separate socket to a whole receiver, whose clock stands still. */
const now = Math.floor(Date.now() / 1000)
const retiredKey = { name: 'retired', signing_secret: 'whsec_retired_secret', retired: true }
const secrets = {
  live: liveKey.signing_secret,
  sandbox: sandboxKey.signing_secret,
  retired: retiredKey.signing_secret,
  stranger: 'whsec_stranger',
}

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({
    server: preferredServer, // Nothing is to make room for others.
    settings: { quarantineMaxRows: 1_000_000, quarantineMaxBytes: 1_000_000_000 },
  })
  ;({ database, receiver } = its)
  receiver.setKeys(keysOf(liveKey, sandboxKey, retiredKey))
  receiver.setNow(new Date(now * 1000))
  return its.stop
})

const digest = (secret: string, signed: string | Uint8Array, t: string) =>
  createHmac('sha256', secret).update(t).update(signed).digest('hex')

function post(headers: [name: string, value: string][], body: Uint8Array): Buffer {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`)
  const head = `POST /webhooks HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n${lines.join('')}\r\n`
  return Buffer.concat([Buffer.from(head, 'latin1'), body])
}

const goodSignature = (body: Uint8Array) => `t=${now},v1=${digest(secrets.live, body, `${now}.`)}`

function sendSigned(
  { header, skew = 0, by = 'live', over, written = '{t}' }: SignatureCase,
  webhookId: string,
  body: Buffer,
) {
  const t = written.replace('{t}', String(now + skew))
  const signed = {
    'the body alone': { t: '', bytes: body },
    'another time': { t: `${now + skew + 1}.`, bytes: body },
    'another body': { t: `${t}.`, bytes: Buffer.from('{}') },
    'the body with a line break': { t: `${t}.`, bytes: Buffer.concat([body, Buffer.from('\n')]) },
    'what is sent': { t: `${t}.`, bytes: body },
  }[over ?? 'what is sent']
  const v1 = digest(secrets[by], signed.bytes, signed.t)
  const fill = (text: string) =>
    text
      .replaceAll('{t}', t)
      .replaceAll('{v1}', v1)
      .replaceAll('{V1}', v1.toUpperCase())
      .replaceAll('{63}', v1.slice(1))
      .replaceAll('{base64}', Buffer.from(v1, 'hex').toString('base64'))
      .replaceAll('{wrong}', '0'.repeat(64))
  const values = header === null ? [] : [header].flat()
  const given = values.map((value): [string, string] => ['X-Service-Signature', fill(value)])
  return exchange(receiver.webhookUrl, post([['x-service-webhook-id', webhookId], ...given], body))
}

function sendUnder({ ids }: WebhookIdCase, body: Buffer) {
  const given = ids.map((id, at): [string, string] => [
    at % 2 === 0 ? 'X-Service-Webhook-Id' : 'x-service-webhook-id',
    id,
  ])
  return exchange(receiver.webhookUrl, post([...given, ['x-service-signature', goodSignature(body)]], body))
}

function sendBody(webhookId: string, body: Buffer) {
  return exchange(
    receiver.webhookUrl,
    post(
      [
        ['x-service-webhook-id', webhookId],
        ['x-service-signature', goodSignature(body)],
      ],
      body,
    ),
  )
}

function bytesOf({ body }: BodyCase, requestId: string): Buffer {
  if (typeof body !== 'string') return body
  return Buffer.from(body.replaceAll('{id}', requestId).replaceAll('{ID}', requestId.toUpperCase()))
}

const envelope = (answer: RawAnswer | undefined) => [answer?.status, answer?.code]

/** The expected log by webhook id, and the expected quarantine by request. Both are written after the answers. */
const arrivals = new Map<string, { outcome: string; reason: string | null }>()
const quarantined = new Map<string, string>()

async function expectRecorded(): Promise<void> {
  const ids = [...arrivals.keys()]
  const rows = await eventually(async () => {
    const found = await database.sql`
      select webhook_id, outcome, reason from mediadock.arrivals where webhook_id = any(${ids})`
    return found.length >= ids.length && found
  })
  expect(new Map(rows.map(({ webhook_id, outcome, reason }) => [webhook_id, { outcome, reason }]))).toEqual(arrivals)
  const kept = await eventually(async () => {
    const found = await database.sql`
      select wanted.id, reason from unnest(${[...quarantined.keys()]}::text[]) as wanted (id)
      join mediadock.quarantine q on position(convert_to(wanted.id, 'UTF8') in q.body) > 0`
    return found.length >= quarantined.size && found
  })
  expect(new Map(kept.map((row) => [row['id'], row['reason']]))).toEqual(quarantined)
  arrivals.clear()
  quarantined.clear()
}

const rounds = long ? 20 : 1
const roundBytes = 5_000_000
/** Well below what one round brings: what is held on to is seen. */
const roomBytes = 3_000_000

/** A body with so many blanks behind it that `count` of them weigh as much as a round has to. */
function weighed(count: number): Buffer {
  const { body } = failed()
  return Buffer.concat([body, Buffer.alloc(Math.ceil(roundBytes / count), ' ')])
}

/** A round of a family again and again leaves nothing behind, and does not keep out who means well. */
async function endure(round: () => Promise<(RawAnswer | undefined)[]>): Promise<void> {
  const countQuarantined = async () =>
    Number((await database.sql`select count(*) as n from mediadock.quarantine`)[0]?.['n'])
  // Until it is written, what is refused is held.
  const settled = async () => {
    const before = await countQuarantined()
    const answers = await round()
    const refused = answers.filter((answer) => answer?.code?.startsWith('invalid_') === true).length
    await eventually(async () => (await countQuarantined()) === before + refused)
    await eventually(async () => (await database.sql`select from mediadock.inbox limit 1`).length === 0)
  }
  await settled()
  const before = heldBytes()
  for (let n = 0; n < rounds; n += 1) await settled()
  await eventually(() => heldBytes() - before < roomBytes)
  expect(await deliver(receiver.webhookUrl, failed().body, { t: now })).toMatchObject({
    status: 200,
    json: { status: 'accepted' },
  })
}

describe(`X-Service-Signature: ${signatures.length} cases`, () => {
  it.each(signatures)('$name: $reason', async (given) => {
    const webhookId = randomUUID()
    const { body, requestId } = failed()
    const answer = await sendSigned(given, webhookId, body)
    if (given.reason === 'no_http') return expect(envelope(answer)).toEqual([400, 'bad_request'])
    if (given.reason === 'accepted') {
      expect(envelope(answer)).toEqual([200, 'accepted'])
      const [row] = await database.sql`select key_name from mediadock.deliveries where webhook_id = ${webhookId}`
      return expect(row).toEqual({ key_name: given.by ?? 'live' })
    }
    expect(envelope(answer)).toEqual([401, 'invalid_signature'])
    // One text for all causes.
    expect(answer?.body).toBe(
      '{"error":{"type":"invalid_request_error","code":"invalid_signature","message":"the signature or its time is not valid"}}',
    )
    arrivals.set(webhookId, { outcome: 'refused', reason: given.reason })
    quarantined.set(requestId, given.reason)
    expect(await database.sql`select from mediadock.deliveries where webhook_id = ${webhookId}`).toHaveLength(0)
  })

  it('are logged and quarantined with their reasons', expectRecorded)

  it('sent repeatedly: a good delivery is still accepted, and memory stays bounded', () =>
    endure(() => Promise.all(signatures.map((given) => sendSigned(given, randomUUID(), weighed(signatures.length))))))
})

describe(`X-Service-Webhook-Id: ${webhookIds.length} cases`, () => {
  const statuses = { accepted: 200, invalid_webhook_id: 400, bad_request: 400, headers_too_large: 431 } as const

  it.each(webhookIds)('$name: $answer', async (given) => {
    const { body, requestId } = failed()
    expect(envelope(await sendUnder(given, body))).toEqual([statuses[given.answer], given.answer])
    const kept = await database.sql`select webhook_id from mediadock.deliveries where request_id = ${requestId}`
    // HTTP takes blanks and tabs away from the ends of a value.
    expect(kept.map((row) => row['webhook_id'])).toEqual(
      given.answer === 'accepted' ? given.ids.map((id) => id.trim()) : [],
    )
    if (given.answer === 'invalid_webhook_id') quarantined.set(requestId, 'invalid_webhook_id')
  })

  it('are quarantined with their reason', expectRecorded)

  it('sent repeatedly: a good delivery is still accepted, and memory stays bounded', () =>
    endure(() => Promise.all(webhookIds.map((given) => sendUnder(given, weighed(webhookIds.length))))))
})

describe(`bodies: ${bodies.length} cases`, () => {
  const requestIds = new Map<BodyCase, string>()

  it.each(bodies)('$name', async (given) => {
    const webhookId = randomUUID()
    const requestId = randomUUID()
    requestIds.set(given, requestId)
    const body = bytesOf(given, requestId)
    const parkedReason = 'parked' in given ? given.parked : null
    expect(envelope(await sendBody(webhookId, body))).toEqual([200, parkedReason === null ? 'accepted' : 'parked'])
    const [row, ...more] =
      await database.sql`select id, body, parked_reason from mediadock.deliveries where webhook_id = ${webhookId}`
    expect(more).toEqual([])
    expect(row?.['parked_reason']).toBe(parkedReason)
    expect(row?.['body'].equals(body)).toBe(true)
    if (parkedReason !== null)
      expect(await database.sql`select from mediadock.inbox where delivery_id = ${row?.['id']}`).toEqual([])
    const outcome = parkedReason === null ? 'accepted' : 'parked'
    arrivals.set(webhookId, { outcome, reason: parkedReason })
  })

  it('are logged with their outcome', expectRecorded)

  it('land as expected, or not at all', async () => {
    await eventually(async () => (await database.sql`select from mediadock.inbox limit 1`).length === 0)
    const rows = await database.sql`select request_id, status from mediadock.results`
    const landed = new Map(rows.map((row) => [row['request_id'], row['status']]))
    const found = [...requestIds].map(([given, requestId]) => [given.name, landed.get(requestId)])
    expect(found).toEqual(bodies.map((given) => [given.name, 'lands' in given ? given.lands : undefined]))
  })

  it('sent repeatedly: a good delivery is still accepted, and memory stays bounded', () => {
    const webhookId = randomUUID()
    return endure(() => Promise.all(bodies.map((given) => sendBody(webhookId, bytesOf(given, randomUUID())))))
  })
})
