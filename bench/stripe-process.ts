import type { IncomingMessage } from 'node:http'
import { createRequire } from 'node:module'
import express from 'express'
import getRawBody from 'raw-body'
import { serve } from './serve.ts'
import { signingSecret } from './signed-requests.ts'

/**
 * A peer of the receiver, as a separate process: stripe-sync-engine behind Express, as its documentation uses it. It
 * verifies an event of Stripe and writes its object to Postgres before it answers. Nothing calls Stripe.
 */
// Its module for `import` cannot find its own migrations.
const { runMigrations, StripeSync }: typeof import('@supabase/stripe-sync-engine') = createRequire(import.meta.url)(
  '@supabase/stripe-sync-engine',
)
const databaseUrl = process.argv[2] ?? ''
await runMigrations({ databaseUrl, schema: 'stripe' })
const sync = new StripeSync({
  poolConfig: { connectionString: databaseUrl, max: 10 },
  stripeSecretKey: 'sk_test_of_the_benchmark',
  stripeWebhookSecret: signingSecret,
  backfillRelatedEntities: false,
})

const app = express()
app.disable('x-powered-by')
app.disable('etag')
app.post('/webhooks', (req, res, next) => {
  take(req).then(() => void res.json({ status: 'accepted' }), next)
})
serve(app)

async function take(req: IncomingMessage): Promise<void> {
  const body = await getRawBody(req, { length: req.headers['content-length'] ?? null, limit: 1_048_576 })
  await sync.processWebhook(body, String(req.headers['stripe-signature']))
}
