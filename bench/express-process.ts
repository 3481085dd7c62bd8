import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import express from 'express'
import postgres from 'postgres'
import getRawBody from 'raw-body'
import { serve } from './serve.ts'
import { signingSecret } from './signed-requests.ts'

/**
 * The contender of the receiver, as a separate process: Express, raw-body and HMAC in one handler. With the URL of a
 * database, each request is one `insert` into the receiver's table of deliveries. Without it, nothing is stored.
 */
const databaseUrl = process.argv[2]
const sql = databaseUrl === undefined ? undefined : postgres(databaseUrl, { max: 10, onnotice: () => {} })

const app = express()
app.disable('x-powered-by')
app.disable('etag')
app.post('/webhooks', (req, res, next) => {
  take(req).then((status) => void res.status(status).json({ status: status === 200 ? 'accepted' : 'refused' }), next)
})
serve(app)

async function take(req: IncomingMessage): Promise<200 | 401> {
  const body = await getRawBody(req, { length: req.headers['content-length'] ?? null, limit: 1_048_576 })
  if (!isSigned(String(req.headers['x-service-signature']), body)) return 401
  if (sql) await insert(sql, req.headers, body)
  return 200
}

function isSigned(header: string, body: Buffer): boolean {
  const [, t, v1] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(header) ?? []
  if (t === undefined || v1 === undefined || Math.abs(Date.now() / 1000 - Number(t)) > 300) return false
  const expected = createHmac('sha256', signingSecret).update(`${t}.`).update(body).digest()
  return timingSafeEqual(expected, Buffer.from(v1, 'hex'))
}

async function insert(client: postgres.Sql, headers: NodeJS.Dict<string | string[]>, body: Buffer): Promise<void> {
  const { request_id: requestId, status }: { request_id: string; status: string } = JSON.parse(body.toString())
  const webhookId = String(headers['x-service-webhook-id'])
  const signedAt = new Date(Number(headers['x-service-timestamp']) * 1000)
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) if (name !== 'x-service-signature') kept[name] = String(value)
  await client`
    insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
    values (${webhookId}, ${webhookId}, ${requestId}, ${status}, 'bench', ${signedAt}, ${new Date()}, ${client.json(kept)}, ${body})
    on conflict (id) do nothing`
}
