import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../provider/support/free-port.ts'
import { childEnv } from '../../support/child-env.ts'
import { eventually } from '../../support/eventually.ts'
import { deliver, failed, headersFor, nowSeconds } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'

it('the program of docs/subscriptions.md accepts posts, and refuses other signatures', async () => {
  const page = await fs.readFile(path.resolve(import.meta.dirname, '../../../docs/subscriptions.md'), 'utf8')
  const programs = [...page.matchAll(/```js\n([\s\S]*?)```/g)].map(([, text]) => text ?? '')
  expect(programs).toHaveLength(1)
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-subscriber-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  await fs.writeFile(path.join(folder, 'subscriber.mjs'), programs.join(''))

  const { receiver, stop } = await withReceiver()
  onTestFinished(stop)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}/`
  const { json } = await call(receiver, 'POST /api/subscriptions', { body: { name: 'printed', url } })
  const program = spawn(process.execPath, [path.join(folder, 'subscriber.mjs')], {
    env: { ...childEnv, PORT: String(port), SUBSCRIPTION_SECRET: json.secret },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void program.kill('SIGKILL'))
  let printed = ''
  program.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await eventually(async () => (await call(receiver, 'POST /api/subscriptions/printed/test')).json.ok)
  expect(printed).toBe(`0 ${'0'.repeat(8)}-0000-0000-0000-${'0'.repeat(12)} COMPLETED\n`)

  const { requestId, body } = failed()
  await deliver(receiver.webhookUrl, body)
  await eventually(() => printed.includes(requestId))
  expect(printed).toMatch(new RegExp(`\n\\d{16} ${requestId} FAILED\n$`))
  await eventually(async () => (await call(receiver, 'GET /api/subscriptions')).json.data[0].backlog === 0)

  const forged = Buffer.from(JSON.stringify({ position: 1, request_id: randomUUID(), status: 'FAILED' }))
  const before = printed
  for (const delivery of [
    { secret: 'whsec_other' },
    { secret: json.secret, t: nowSeconds() - 400 },
    { secret: json.secret, headers: { 'x-service-signature': 't=1' } },
  ]) {
    const answer = await fetch(url, {
      method: 'POST',
      headers: headersFor(forged, delivery),
      body: new Uint8Array(forged),
    })
    expect(answer.status).toBe(401)
  }
  expect(printed).toBe(before)
})
