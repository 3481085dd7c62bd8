import { createHmac, randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { long } from '../chaos/length.ts'
import { eventually } from '../support/eventually.ts'
import { liveKey, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, nowSeconds } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { framing, type FramingCase } from './cases/framing.ts'
import { connect, heldBytes } from './raw.ts'

if (long) vi.setConfig({ testTimeout: 1_800_000 })

let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ settings: { maxBodyBytes: 64 * 1024 } })
  receiver = its.receiver
  return its.stop
})

function fill(bytes: string): string {
  const body = failed().body.toString()
  const t = nowSeconds()
  const v1 = createHmac('sha256', liveKey.signing_secret).update(`${t}.${body}`).digest('hex')
  return bytes
    .replaceAll('{signed}', `X-Service-Webhook-Id: ${randomUUID()}\r\nX-Service-Signature: t=${t},v1=${v1}\r\n`)
    .replaceAll('{body}', body)
    .replaceAll('{length}', String(body.length))
    .replaceAll('{hex}', body.length.toString(16).toUpperCase())
}

/** All answers to it, and whether the connection is still good for a next request, which is asked for health. */
async function play({ bytes, answers, stays }: FramingCase): Promise<{ answers: string[]; stays: boolean }> {
  const connection = await connect(receiver.webhookUrl)
  try {
    connection.send(fill(bytes))
    await connection.answers(answers.length)
    connection.send('GET /healthz HTTP/1.1\r\nhost: x\r\nx-last: yes\r\n\r\n')
    // One more than is expected either way.
    const all = await connection.answers(answers.length + 1)
    for (const { status, headers } of all)
      if (status >= 400) expect(headers).toMatch(/\r\ncontent-type: application\/json[;\r]/)
    const isAnswered = all.length > answers.length
    if (stays !== true) await eventually(connection.isOver).catch(() => undefined)
    const came = all.map(({ status, code = '-' }) => `${status} ${code}`)
    return { answers: isAnswered && came.at(-1) === '200 ok' ? came.slice(0, -1) : came, stays: !connection.isOver() }
  } finally {
    connection.close()
  }
}

describe(`HTTP framing: ${framing.length} cases`, () => {
  it.each(framing)('$name', async (given) => {
    expect(await play(given)).toEqual({ answers: given.answers, stays: given.stays === true })
  })

  it('sent repeatedly: a good delivery is still accepted, and memory stays bounded', async () => {
    const round = () =>
      Promise.all(
        framing.map(async ({ bytes }) => {
          const connection = await connect(receiver.webhookUrl)
          connection.send(fill(bytes))
          await connection.answers(1)
          connection.close()
        }),
      )
    await round()
    const before = heldBytes()
    for (let n = 0; n < (long ? 20 : 1); n += 1) await round()
    await eventually(() => heldBytes() - before < 5_000_000)
    expect(await deliver(receiver.webhookUrl, failed().body)).toMatchObject({
      status: 200,
      json: { status: 'accepted' },
    })
  })
})
