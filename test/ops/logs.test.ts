import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { keyNamed, startProductionReceiver } from '../start/support/receiver-process.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand } from '../support/provider-stand.ts'
import { deliver, failed, headersFor, okImage } from '../support/webhooks.ts'

const secret = 'whsec_first_secret'
const { api_key: apiKey } = keyNamed('first', secret)
const token = 'internal-token-0123456789-0123456789'
const prompt = 'a prompt that nobody but the provider should read'

it('logs one JSON line per arrival, landing, call to the provider and reconcile run, with searchable ids and no secret', async () => {
  const stand = await startProviderStand()
  onTestFinished(stand.close)
  const submittedId = randomUUID()
  const links = { status_url: `${stand.url}/s`, response_url: `${stand.url}/r`, cancel_url: `${stand.url}/c` }
  stand.answer((id, req, res) => {
    if (req.method === 'POST')
      return json(res, 200, { request_id: submittedId, status: 'IN_QUEUE', queue_position: 3, ...links, cost: 4 })
    json(res, 200, imageResult(id))
  })
  const { program, base, internalBase, database } = await startProductionReceiver({
    NODE_ENV: 'test',
    GENERATION_API_URL: stand.url,
    WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
    INTERNAL_TOKEN: token,
    STUCK_AFTER_SECONDS: '1',
    RECONCILE_CRON: '* * * * * *',
  })
  const webhooks = `${base}/webhooks`
  const linesOf = (msg: string | RegExp): Record<string, unknown>[] =>
    program
      .output()
      .split('\n')
      .filter((line) => line.startsWith('{') && line.endsWith('}'))
      .map((line) => JSON.parse(line))
      .filter((line) => (typeof msg === 'string' ? line.msg === msg : msg.test(line.msg)))
  const lineOf = (msg: string, ids: Record<string, unknown>) =>
    eventually(() => linesOf(msg).find((line) => Object.entries(ids).every(([name, value]) => line[name] === value)))

  const image = okImage()
  const webhook = { secret, webhookId: `wh_${randomUUID()}` }
  expect((await deliver(webhooks, image.body, webhook)).status).toBe(200)
  const arrival = await lineOf('webhook answered', { webhook_id: webhook.webhookId })
  expect(arrival).toMatchObject({
    status: 200,
    outcome: 'accepted',
    request_id: image.requestId,
    key_name: 'first',
    skew_seconds: expect.any(Number),
    ms: expect.any(Number),
  })
  // A second line only where the end is not the ordinary one.
  const again = { secret, webhookId: `wh_${randomUUID()}` }
  expect((await deliver(webhooks, image.body, again)).status).toBe(200)
  const second = { webhook_id: again.webhookId, request_id: image.requestId }
  expect(await lineOf('delivery processed', second)).toMatchObject({ status: 'COMPLETED', outcome: 'no_effect' })
  expect(linesOf('delivery processed').some((line) => line['webhook_id'] === webhook.webhookId)).toBe(false)
  const call = { operation: 'result', request_id: image.requestId }
  expect(await lineOf('provider called', call)).toMatchObject({
    key_name: 'first',
    outcome: 'result',
    detail: 'COMPLETED',
    ms: expect.any(Number),
  })

  const refused = { secret: 'whsec_of_somebody_else', webhookId: `wh_${randomUUID()}` }
  const refusedBody = failed().body
  expect((await deliver(webhooks, refusedBody, refused)).status).toBe(401)
  expect(await lineOf('webhook answered', { webhook_id: refused.webhookId })).toMatchObject({
    status: 401,
    outcome: 'refused',
    reason: 'no_matching_secret',
  })

  const parked = { secret, webhookId: `wh_${randomUUID()}` }
  expect((await deliver(webhooks, Buffer.from('{"hello":"there"}'), parked)).status).toBe(200)
  expect(await lineOf('webhook answered', { webhook_id: parked.webhookId })).toMatchObject({
    outcome: 'parked',
    reason: expect.any(String),
    delivery_id: expect.any(String),
  })
  // As if a later version had stored it, and this one claims it from the inbox.
  await database.sql`
    with unparked as (update mediadock.deliveries set parked_reason = null where webhook_id = ${parked.webhookId} returning id)
    insert into mediadock.inbox (delivery_id, due_at) select id, now() from unparked`
  const parkedLater = 'delivery parked: it is authentic but not usable, see /parked'
  expect(await lineOf(parkedLater, { webhook_id: parked.webhookId })).toMatchObject({
    outcome: 'parked',
    reason: expect.any(String),
  })

  const authorization = `Bearer ${token}`
  const submit = await fetch(`${internalBase}/api/generations`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'aurora-image', input: { prompt } }),
  })
  const generation = z.object({ request_id: z.string(), idempotency_key: z.string() }).parse(await submit.json())
  expect([submit.status, generation.request_id]).toEqual([202, submittedId])
  const submitCall = { operation: 'submit', request_id: submittedId, idempotency_key: generation.idempotency_key }
  expect(await lineOf('provider called', submitCall)).toMatchObject({
    key_name: 'first',
    model: 'aurora-image',
    outcome: 'submitted',
    ms: expect.any(Number),
  })

  // No webhook of it comes, so the reconciler polls.
  const reconciled = await lineOf('request reconciled', { request_id: submittedId })
  expect(reconciled).toMatchObject({ key_name: 'first', status: 'COMPLETED', outcome: 'landed' })
  const run = await eventually(() => linesOf('reconcile run ended').find((line) => Number(line['landed']) > 0))
  expect(run).toMatchObject({
    trigger: 'cron',
    scanned: 1,
    landed: 1,
    not_found: 0,
    failed: 0,
    rate_limited: 0,
    ms: expect.any(Number),
  })
  const [row] = await database.sql`select landed from mediadock.reconcile_runs where id = ${Number(run['run_id'])}`
  expect(row).toEqual({ landed: 1 })
  // A run that found nothing is a run, too: silence would be a fault.
  await eventually(() => linesOf('reconcile run ended').some((line) => line['scanned'] === 0))

  const replayed = await fetch(`${internalBase}/api/deliveries/${String(arrival['delivery_id'])}/replay`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: '{}',
  })
  expect(replayed.status).toBe(200)
  await lineOf('delivery replayed', { delivery_id: arrival['delivery_id'], request_id: image.requestId })
  expect(
    (await fetch(`${internalBase}/api/stats`, { headers: { authorization: 'Bearer wrong-but-nobodys-business' } }))
      .status,
  ).toBe(401)

  program.kill('SIGTERM')
  expect(await program.exit).toEqual({ code: 0, signal: null })
  const log = program.output()
  const signature = headersFor(image.body, webhook)['x-service-signature'].split('v1=')[1] ?? ''
  const fields = new Set(log.split('\n').flatMap((line) => (line.startsWith('{') ? Object.keys(JSON.parse(line)) : [])))
  expect([...fields].filter((name) => !/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name))).toEqual([])
  for (const hush of [
    secret,
    refused.secret,
    apiKey,
    token,
    signature,
    prompt,
    'wrong-but-nobodys-business',
    'media.test',
    'the model gave up',
    '"hello"',
  ]) {
    expect(log).not.toContain(hush)
  }
})
