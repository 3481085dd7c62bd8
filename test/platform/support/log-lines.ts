import http from 'node:http'
import { sql } from 'drizzle-orm'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'

// Logs everything that must not be seen, under every name and at every depth; the test reads what came of it.
const hush = 'HUSH-0123456789'
const pool = createPool({ url: process.env['DATABASE_URL'] ?? '', max: 1 })
const logger = createLogger('info')

const secret = {
  authorization: `Bearer ${hush}`,
  'x-api-key': hush,
  Cookie: `session=${hush}`,
  'set-cookie': [hush],
  'X-Service-Signature': `t=1,v1=${hush}`,
  api_key: hush,
  signing_secret: hush,
  apiKey: hush,
  signingSecret: hush,
  secret: { value: hush },
  secretKey: Buffer.from(hush),
  internalToken: hush,
  token: hush,
  password: hush,
  databaseUrl: `postgres://u:${hush}@h/d`,
}
logger.info({ ...secret, request_id: 'seen-top' }, 'top')
logger.info({ webhook_id: 'a\u009b1Ab\u007fc' }, 'what moves a cursor')
logger.info({ req: { headers: secret }, keys: [secret, { name: 'seen-list', deeper: [[{ secret }]] }] }, 'deep')
logger
  .child({ ...secret, of: 'seen-parent' })
  .child({ req: { headers: secret } })
  .info({ bound: 'seen-child' }, 'child')
const circle: Record<string, unknown> = { seen: 'seen-circle', secret: hush }
circle['self'] = circle
logger.info(circle, 'circle')

/** The error of a statement, or undefined. */
const failure = async (work: PromiseLike<unknown>) =>
  Promise.resolve(work).then(
    () => undefined,
    (error: unknown) => error,
  )
const values = [
  ['drizzle', await failure(pool.db.execute(sql`select ${hush}::int as drizzle`))],
  ['uuid', await failure(pool.db.execute(sql`select ${`a"${hush}"b`}::uuid as uuid`))],
  ['plain', await failure(pool.client`select ${hush}::int as plain`)],
  [
    'constraint',
    await failure(
      pool.db.execute(sql`insert into mediadock.requests (request_id, model, metadata) values (null, ${hush}, null)`),
    ),
  ],
  ['missing', await failure(pool.db.execute(sql`select ${hush}::text from seen_nowhere`))],
] as const
for (const [what, error] of values) {
  logger.error({ err: error }, what)
  logger.error({ err: new Error(`around ${what}`, { cause: error }) }, 'wrapped')
  logger.error({ err: new AggregateError([error], `many ${what}`) }, 'several')
}
logger.error(values[0][1], 'bare')
try {
  // Its message is clean; its `input` is the whole URL.
  logger.info({ url: new URL(`postgres://u:${hush}@h:port/d`) })
} catch (error) {
  logger.error({ err: error }, 'url')
}
const refused = await failure(new Promise((_, reject) => http.get('http://127.0.0.1:9/').once('error', reject)))
logger.error({ err: refused }, 'refused')
logger.error({ err: 'seen-string' }, 'no error')
await pool.close()
