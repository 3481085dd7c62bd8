import { createHmac, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterEach, beforeAll, expect, it, vi } from 'vitest'
import { long } from '../chaos/length.ts'
import { preferredServer, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { liveKey, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, nowSeconds, okAudio, okImage } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { bodies } from './cases/bodies.ts'
import { framing } from './cases/framing.ts'
import { signatures } from './cases/signatures.ts'
import { webhookIds } from './cases/webhook-ids.ts'
import { connect, exchange, heldBytes } from './raw.ts'

if (long) vi.setConfig({ testTimeout: 1_800_000 })

/** Random variations of each family's cases. The rules alone determine the answers. */
const runs = (short: number) => ({ numRuns: long ? short * 50 : short })

let database: TestDatabase
let receiver: TestReceiver
let before: number

beforeAll(async () => {
  const its = await withReceiver({ server: preferredServer, settings: { maxBodyBytes: 64 * 1024 } })
  ;({ database, receiver } = its)
  before = heldBytes()
  return its.stop
})
afterEach(async () => {
  expect(await deliver(receiver.webhookUrl, failed().body)).toMatchObject({ status: 200, json: { status: 'accepted' } })
  await eventually(() => heldBytes() - before < 16_000_000)
})

const hmac = (body: Uint8Array, t: number) =>
  createHmac('sha256', liveKey.signing_secret).update(`${t}.`).update(body).digest('hex')

function post(headers: string[], body: Uint8Array): Buffer {
  const head = ['POST /webhooks HTTP/1.1', 'host: x', `content-length: ${body.length}`, ...headers, '', ''].join('\r\n')
  return Buffer.concat([Buffer.from(head, 'latin1'), body])
}

const byte = fc.nat({ max: 255 }).map((code) => String.fromCodePoint(code))

/** A header's value as it may stand there: no control characters, and nothing that HTTP takes away from its ends. */
const value = (pieces: fc.Arbitrary<string>) =>
  fc
    .array(pieces, { maxLength: 8 })
    .map((all) => [...all.join('')].filter((character) => /^[ -~\u0080-\u00ff]$/.test(character)).join(''))

it('a random signature is refused', async () => {
  const piece = fc.oneof(
    fc.constantFrom(...signatures.flatMap(({ header }) => header ?? []), 't={t}', 'v1={v1}', ',', '=', ' ', '\t'),
    fc.string({ unit: byte, maxLength: 6 }),
  )
  await fc.assert(
    fc.asyncProperty(value(piece), async (text) => {
      const { body } = failed()
      const header = text
        .replaceAll('{t}', String(nowSeconds()))
        .replaceAll('{v1}', hmac(Buffer.from('another body'), nowSeconds()))
      const answer = await exchange(
        receiver.webhookUrl,
        post([`x-service-webhook-id: ${randomUUID()}`, `x-service-signature: ${header}`], body),
      )
      // Cases of 12 KiB, put together, are no headers any more.
      const tooLarge = header.length > 15_000
      expect([answer?.status, answer?.code]).toEqual(tooLarge ? [431, 'headers_too_large'] : [401, 'invalid_signature'])
    }),
    runs(25),
  )
})

it('a valid id is accepted and stored unchanged', async () => {
  const piece = fc.oneof(
    fc.constantFrom(...webhookIds.flatMap(({ ids }) => ids).filter((id) => id.length < 300)),
    fc.string({ unit: byte, maxLength: 40 }),
  )
  await fc.assert(
    fc.asyncProperty(value(piece), async (text) => {
      const { body, requestId } = failed()
      const t = nowSeconds()
      const answer = await exchange(
        receiver.webhookUrl,
        post([`x-service-webhook-id: ${text}`, `x-service-signature: t=${t},v1=${hmac(body, t)}`], body),
      )
      // JavaScript's trim would take more away than HTTP does.
      const id = text.replaceAll(/^ +| +$/g, '')
      const isId =
        id.length >= 1 && id.length <= 255 && [...id].every((character) => character > ' ' && character <= '~')
      expect([answer?.status, answer?.code]).toEqual(isId ? [200, 'accepted'] : [400, 'invalid_webhook_id'])
      const kept = await database.sql`select webhook_id from mediadock.deliveries where request_id = ${requestId}`
      expect(kept.map((row) => row['webhook_id'])).toEqual(isId ? [id] : [])
    }),
    runs(25),
  )
})

it('any body is stored byte for byte, and lands or is parked', async () => {
  const small = bodies.map(({ body }) => Buffer.from(body)).filter(({ length }) => length < 4096)
  const spoiled = fc
    .tuple(
      fc.constantFrom(...small, okAudio().body, okImage().body),
      fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 4 }),
      fc.boolean(),
    )
    .map(([body, changes, isCut]) => {
      const bytes = Buffer.from(body.toString('latin1').replaceAll('{id}', randomUUID()), 'latin1')
      for (const [at, byte] of changes) if (bytes.length > 0) bytes[at % bytes.length] = byte
      return isCut ? bytes.subarray(0, (changes[0]?.[0] ?? 0) % (bytes.length + 1)) : bytes
    })
  const anything = fc.oneof(
    spoiled,
    fc.json().map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  )
  await fc.assert(
    fc.asyncProperty(anything, async (body) => {
      const webhookId = randomUUID()
      const t = nowSeconds()
      const answer = await exchange(
        receiver.webhookUrl,
        post([`x-service-webhook-id: ${webhookId}`, `x-service-signature: t=${t},v1=${hmac(body, t)}`], body),
      )
      const [row] =
        await database.sql`select body, parked_reason from mediadock.deliveries where webhook_id = ${webhookId}`
      expect([answer?.status, answer?.code]).toEqual([200, row?.['parked_reason'] === null ? 'accepted' : 'parked'])
      expect(row?.['body'].equals(body)).toBe(true)
    }),
    runs(25),
  )
  await eventually(async () => (await database.sql`select from mediadock.inbox limit 1`).length === 0)
  expect(
    await database.sql`select parked_reason from mediadock.deliveries where parked_reason not in
    ('not_utf8', 'not_json', 'not_storable', 'unknown_shape', 'no_request_id', 'unknown_status')`,
  ).toEqual([])
})

it('random bytes on a connection get an HTTP answer, never a 5xx, and nothing unsigned is accepted', async () => {
  const piece = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.constantFrom(...framing.map(({ bytes }) => bytes).filter(({ length }) => length < 2048)),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        '\r\n',
        '\n',
        '0\r\n\r\n',
        'transfer-encoding: chunked\r\n',
        'content-length: 5\r\n',
        ':',
        ' ',
        '\0',
      ),
    },
    { weight: 1, arbitrary: fc.string({ unit: byte, maxLength: 20 }) },
  )
  await fc.assert(
    fc.asyncProperty(
      fc.array(piece, { minLength: 1, maxLength: 4 }),
      fc.nat(),
      fc.integer({ min: 1, max: 4 }),
      async (pieces, at, count) => {
        const whole = pieces
          .join('')
          .replaceAll(
            '{signed}',
            `x-service-webhook-id: w\r\nx-service-signature: t=${nowSeconds()},v1=${'0'.repeat(64)}\r\n`,
          )
        const text = whole.replaceAll('{body}', 'hello').replaceAll('{length}', '5').replaceAll('{hex}', '5')
        const cut = at % text.length
        const connection = await connect(receiver.webhookUrl)
        // In two pieces, some of it left out between them.
        connection.send(text.slice(0, cut))
        connection.send(text.slice(cut + count))
        connection.end()
        await eventually(connection.isOver, 8000)
        for (const { status, code } of await connection.answers(0)) {
          expect([100, 200, 400, 401, 404, 405, 408, 413, 415, 417, 431]).toContain(status)
          if (status === 200) expect(code).toBe('ok')
        }
        connection.close()
      },
    ),
    runs(25),
  )
})
