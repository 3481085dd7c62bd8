import { createHmac, randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { readArchiveState } from '../../../src/receiver/archive/archive.ts'
import { claimCopies, putOffCopy, type Copy } from '../../../src/receiver/archive/copies.ts'
import { readProblems } from '../../../src/receiver/on-call/problems.ts'
import { readingOptions } from '../../../src/receiver/on-call/reading.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { preferredServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { withReceiver, type WithReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, mediaStand, pngOf, retryNow, temporaryFolder } from './media-stand.ts'

const secret = Buffer.alloc(32, 1)
const key = { name: 'pictures-key', api_key: 'r8_x', signing_secret: `whsec_${secret.toString('base64')}` }
const keys = withSources(keysOf(liveKey), JSON.stringify([{ name: 'pictures', kind: 'replicate', keys: [key] }]))
const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString()

/** Delivers the webhook of a job that has just arrived, and returns its request's id. */
async function landed({ receiver, database }: WithReceiver, { link, endedAt }: { link: string; endedAt: string }) {
  const [id, at] = [randomUUID(), Math.floor(Date.now() / 1000)]
  const body = JSON.stringify({ id, status: 'succeeded', output: [link], completed_at: endedAt })
  const signature = createHmac('sha256', secret).update(`${id}.${at}.${body}`).digest('base64')
  const headers = { 'webhook-id': id, 'webhook-timestamp': String(at), 'webhook-signature': `v1,${signature}` }
  const { status } = await fetch(new URL('/webhooks/pictures', receiver.webhookUrl), { method: 'POST', headers, body })
  expect(status).toBe(200)
  return eventually(async () => {
    const [row] = await database.sql`select request_id from mediadock.results where external_id = ${id}`
    return row?.['request_id'] as string | undefined
  })
}

it('copies media first whose links end soonest, and lost ones in their ordinary turn', async () => {
  const { receiver, database, stop } = await withReceiver({ server: preferredServer })
  onTestFinished(stop)
  const ids = await database.sql`
    insert into mediadock.media_copies (request_id, kind, position, url, state, due_at, expires_at)
    select gen_random_uuid(), 'image', 0, name, 'waiting', now() + due, now() + expires from (values
      ('no promise', interval '-2 hours', null), ('lost', interval '-3 hours', interval '-1 minute'),
      ('in 30 minutes', interval '-4 hours', interval '30 minutes'),
      ('in 20 minutes', interval '-1 minute', interval '20 minutes'),
      ('put off', interval '1 minute', interval '5 minutes')) as given (name, due, expires) returning request_id`
  expect(ids).toHaveLength(5)
  const { db } = receiver.deps
  // The first end that is still to come: that of the copy that was put off.
  const now = new Date()
  const { links_end: end, expiring } = await readArchiveState(db, now)
  expect(expiring.count).toBe(1)
  expect(Math.round((Date.parse(String(end)) - now.getTime()) / 60_000)).toBe(5)

  const claimed: Copy[] = []
  for (const limit of [1, 1, 1, 2]) claimed.push(...(await claimCopies(db, { limit })))
  expect(claimed.map(({ url }) => url)).toEqual(['in 20 minutes', 'in 30 minutes', 'lost', 'no promise'])

  // A pause that would outlast the link leaves half of its time.
  const failure = { fault: 'unreachable', trouble: 'x', pauseSeconds: 25 * 60, counts: true } as const
  for (const copy of claimed) await putOffCopy(db, copy, failure)
  const rows = await database.sql`
    select url, round(extract(epoch from due_at - now()) / 60)::int as minutes from mediadock.media_copies
    where tries = 1 order by url`
  expect([...rows]).toEqual([
    { url: 'in 20 minutes', minutes: 10 },
    { url: 'in 30 minutes', minutes: 25 },
    { url: 'lost', minutes: 25 },
    { url: 'no promise', minutes: 25 },
  ])
})

it('reports what will be lost and when, until it is copied', async () => {
  const folder = await temporaryFolder()
  onTestFinished(folder.remove)
  const settings = { keys, mediaArchive: { kind: 'file', root: folder.root } as const }
  const its = await withReceiver({ server: preferredServer, stand: true, settings })
  onTestFinished(its.stop)
  const stand = mediaStand(its)
  const picture = pngOf(8)
  let isServing = false
  const link = stand.serve('a.png', (res) => void (isServing ? res.end(picture) : res.writeHead(503).end()))
  const problems = async () => readProblems(its.receiver.deps.db, await readingOptions(its.receiver.deps))

  const early = await landed(its, { link, endedAt: minutesAgo(40) })
  const copy = async (requestId: string) => {
    const [row] = await its.database.sql`
      select trouble, expires_at from mediadock.media_copies where request_id = ${requestId} and trouble is not null`
    return row
  }
  await eventually(async () => copy(early))
  expect((await problems()).map(({ cause }) => cause)).not.toContain('links_expire')

  const endedAt = minutesAgo(50)
  const requestId = await landed(its, { link, endedAt })
  const expiresAt = new Date(Date.parse(endedAt) + 3_600_000)
  expect(await eventually(async () => copy(requestId))).toMatchObject({ expires_at: expiresAt })
  expect(await problems()).toContainEqual({
    severity: 'critical',
    cause: 'links_expire',
    count: 1,
    affected: [requestId],
    href: `/requests/${requestId}`,
    text: expect.stringMatching(
      new RegExp(`^1 media will be lost at .*${expiresAt.toISOString().slice(11, 16)} unless .* Last failure: .*503`),
    ),
  })

  isServing = true
  await retryNow(its.database, requestId)
  await archivedMedia(its.database, requestId)
  expect((await problems()).map(({ cause }) => cause)).not.toContain('links_expire')
})

it('warns at the start if links end and there is no archive', async () => {
  const lines: string[] = []
  const logger = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
  const { stop } = await withReceiver({ settings: { keys }, logger })
  onTestFinished(stop)
  const warnings = lines.filter((line) => line.includes('MEDIA_ARCHIVE is not set'))
  expect(warnings).toHaveLength(1)
  expect(warnings[0]).toContain('"link_life_seconds":{"pictures":3600}')
})
