import { createHmac, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { requestIdOf } from '../../src/receiver/domain/request-id.ts'
import { sign } from '../../src/wire/signature.ts'
import { long } from '../chaos/length.ts'
import { withReceiverProcess, type ReceiverProcess } from '../chaos/receiver-process.ts'
import { videoOfPng } from '../platform/support/crafted-media.ts'
import { pngOf, temporaryFolder } from '../receiver/archive/media-stand.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json } from '../support/provider-stand.ts'
import { liveKey } from '../support/receiver.ts'

/*
 * One receiver, four sources at once: the default one, a signed one whose webhooks carry the result (replicate), a signed one
 * whose webhooks are hints (openrouter-video), and an unsigned one (luma). The number of a job decides which faults it gets.
 */

const [perSource, kills] = long ? [2000, 20] : [48, 2]
const names = ['generation-queue', 'pictures', 'clips', 'dreams'] as const
type Name = (typeof names)[number]

const fates = ['ordinary', 'sent three times', 'webhook lost', 'contradicted', 'link expired'] as const
type Job = { source: Name; id: string; requestId: string; fate: (typeof fates)[number]; link: string }

const secretOf = (name: string) => `whsec_${Buffer.from(`a secret of ${name}, long enough`).toString('base64')}`

function jobsAt(url: string): Job[] {
  return names.flatMap((source) =>
    Array.from({ length: perSource }, (_, at) => {
      // The ids of the three are equal, and no uuids, so that only the source tells them apart.
      const id = source === 'generation-queue' ? randomUUID() : `job-${at}`
      const { requestId } = requestIdOf(source === 'generation-queue' ? null : source, id)
      const fate = fates[at % fates.length] ?? 'ordinary'
      return {
        source,
        id,
        requestId,
        fate,
        link: `${url}/media/${source}/${fate === 'link expired' ? 'gone' : at}.png`,
      }
    }),
  )
}

/** The APIs of all four, and their media. */
async function startApis(): Promise<{ url: string; serve: (jobs: readonly Job[]) => void }> {
  const byPath = new Map<string, Job>()
  const picture = pngOf(16)
  const film = videoOfPng(picture)
  const server = http.createServer((req, res) => {
    const where = decodeURIComponent(req.url ?? '')
    if (where.startsWith('/media/'))
      return where.endsWith('/gone.png')
        ? res.writeHead(410).end()
        : res.writeHead(200).end(where.startsWith('/media/clips/') ? film : picture)
    const job = byPath.get(where)
    return job === undefined ? json(res, 404, {}) : json(res, 200, answerOf(job))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { url, serve: (jobs) => jobs.forEach((job) => byPath.set(pathOf(job), job)) }
}

function pathOf({ source, id }: Job): string {
  switch (source) {
    case 'generation-queue':
      return `/v1/requests/${id}`
    case 'pictures':
      return `/pictures/predictions/${id}`
    case 'clips':
      return `/clips/videos/${id}`
    case 'dreams':
      return `/dreams/generations/${id}`
  }
}

function answerOf({ source, id, link }: Job): object {
  switch (source) {
    case 'generation-queue':
      return { ...imageResult(id), output: { images: [{ url: link, width: 8, height: 8, original_url: link }] } }
    case 'pictures':
      return { id, status: 'succeeded', output: [link] }
    case 'clips':
      return { id, status: 'completed', urls: [link] }
    case 'dreams':
      return { id, state: 'completed', assets: { image: link } }
  }
}

type Webhook = { path: string; headers: Record<string, string>; body: Buffer }

/** The webhooks of a job: what its source sends, with what befalls it. */
function webhooksOf(job: Job): Webhook[] {
  const said = webhookOf(job, 'completed')
  switch (job.fate) {
    case 'webhook lost':
      return []
    case 'sent three times':
      return [said, said, said]
    case 'contradicted':
      return [webhookOf(job, 'failed'), said]
    case 'ordinary':
    case 'link expired':
      return [said]
  }
}

function webhookOf(job: Job, end: 'completed' | 'failed'): Webhook {
  const { source, id, link } = job
  const t = Math.floor(Date.now() / 1000)
  const webhookId = randomUUID()
  const post = (body: object, headersOf: (bytes: Buffer) => Record<string, string>): Webhook => {
    const bytes = Buffer.from(JSON.stringify(body))
    const where = source === 'generation-queue' ? '/webhooks' : `/webhooks/${source}`
    return { path: where, body: bytes, headers: { 'content-type': 'application/json', ...headersOf(bytes) } }
  }
  const isFailed = end === 'failed'
  switch (source) {
    case 'generation-queue': {
      const payload = { model: 'm', output: { images: [{ url: link }] }, cost: 4 }
      const error = { code: 'GENERATION_FAILED', message: 'it gave up' }
      return post(
        { request_id: id, ...(isFailed ? { status: 'ERROR', error } : { status: 'OK', payload }) },
        (bytes) => ({
          'x-service-webhook-id': webhookId,
          'x-service-timestamp': String(t),
          'x-service-signature': sign(bytes, liveKey.signing_secret, t),
        }),
      )
    }
    case 'pictures': {
      const body = isFailed
        ? { id, status: 'failed', error: 'it gave up' }
        : { id, status: 'succeeded', output: [link] }
      return post(body, (bytes) => ({
        'webhook-id': webhookId,
        'webhook-timestamp': String(t),
        'webhook-signature': `v1,${standardSignature(source, `${webhookId}.${t}.`, bytes)}`,
      }))
    }
    case 'clips':
      return post({ type: `video.generation.${end}`, data: { id, error: 'it gave up' } }, (bytes) => ({
        'x-openrouter-idempotency-key': webhookId,
        'x-openrouter-signature': sign(bytes, secretOf(source), t, ','),
      }))
    case 'dreams':
      return post({ id, state: end, assets: { image: 'https://forged.test/x.png' } }, () => ({}))
  }
}

function standardSignature(name: string, head: string, body: Buffer): string {
  const key = Buffer.from(secretOf(name).slice('whsec_'.length), 'base64')
  return createHmac('sha256', key).update(head).update(body).digest('base64')
}

/** Sends a webhook until it is answered 200, as its source does. */
async function send(receiver: ReceiverProcess, { path: where, headers, body }: Webhook): Promise<void> {
  for (;;) {
    const answer = await fetch(`${receiver.url}${where}`, { method: 'POST', headers, body }).catch(() => undefined)
    await answer?.arrayBuffer().catch(() => undefined)
    if (answer?.status === 200) return
    expect([undefined, 503]).toContain(answer?.status)
    await delay(100)
  }
}

/** Records every change of a result that readers can see: a result that lands twice has two records. */
async function watchStates(sql: postgres.Sql): Promise<void> {
  await sql.unsafe(`
    create table states_seen (request_id uuid not null, status text not null, media_complete boolean not null);
    create function note_state() returns trigger language plpgsql as $$ begin
      if tg_op = 'INSERT' or (old.status, old.media_complete) is distinct from (new.status, new.media_complete) then
        insert into public.states_seen values (new.request_id, new.status, new.media_complete); end if;
      return null; end $$;
    create trigger states after insert or update on mediadock.requests for each row
      when (new.landed_at is not null) execute function note_state()`)
}

async function startOne(databaseUrl: string, apiUrl: string, archive: string): Promise<ReceiverProcess> {
  const { root: folder, remove } = await temporaryFolder()
  onTestFinished(remove)
  const sources = [
    { name: 'pictures', kind: 'replicate', api_url: `${apiUrl}/pictures` },
    { name: 'clips', kind: 'openrouter-video', api_url: `${apiUrl}/clips` },
    { name: 'dreams', kind: 'luma', api_url: `${apiUrl}/dreams` },
  ].map(({ name, kind, ...source }) => {
    const signing = kind === 'luma' ? {} : { signing_secret: secretOf(name) }
    return { name, kind, ...source, keys: [{ name: `${name}-key`, api_key: 'key', ...signing }] }
  })
  const file = path.join(folder, 'sources.json')
  await fs.writeFile(file, JSON.stringify(sources))
  return withReceiverProcess(databaseUrl, {
    SOURCES_FILE: file,
    GENERATION_API_URL: apiUrl,
    MEDIA_ARCHIVE: `file://${archive}`,
    STUCK_AFTER_SECONDS: '2',
    RECONCILE_CRON: '*/2 * * * * *',
    FETCH_RATE_PER_MINUTE: '60000',
  })
}

it(
  `four sources at once, ${perSource} jobs of each, and ${kills} times kill -9: each result lands once, with its media`,
  { timeout: 600_000 },
  async () => {
    const { url: databaseUrl, sql } = await withTestDatabase()
    const apis = await startApis()
    const jobs = jobsAt(apis.url)
    apis.serve(jobs)
    const { root: archive, remove } = await temporaryFolder()
    onTestFinished(remove)
    const receiver = await startOne(databaseUrl, apis.url, archive)
    await watchStates(sql)
    // A lost webhook, and one that is not signed, is found only by a request that is tracked.
    for (const { source, id, requestId } of jobs.filter(
      (job) => job.fate === 'webhook lost' || job.source === 'dreams',
    ))
      await sql`insert into mediadock.requests (request_id, source_name, external_id, key_name) values (${requestId},
        ${source === 'generation-queue' ? null : source}, ${source === 'generation-queue' ? null : id},
        ${source === 'generation-queue' ? 'live' : `${source}-key`})`

    const queue = jobs.toSorted((a, b) => (jobs.indexOf(a) % perSource) - (jobs.indexOf(b) % perSource))
    const sendSome = async () => {
      for (let job = queue.shift(); job !== undefined; job = queue.shift())
        for (const webhook of webhooksOf(job)) await send(receiver, webhook)
    }
    const sending = Promise.all(Array.from({ length: 8 }, sendSome))
    for (let kill = 1; kill <= kills; kill += 1) {
      await eventually(async () => queue.length <= jobs.length * (1 - kill / (kills + 1)), 120_000)
      await receiver.kill()
      await receiver.start()
    }
    await sending

    await eventually(async () => {
      const [left] = await sql`
        select count(*) filter (where status <> 'COMPLETED' or not media_complete)::int as open, count(*)::int as all
        from mediadock.results`
      return expect(left).toEqual({ open: 0, all: jobs.length })
    }, 240_000)
    const rows = await sql<{ request_id: string; source_name: string; external_id: string; urls: string[] }[]>`
      select request_id, source_name, external_id,
        (select array_agg(url) from mediadock.media m where m.request_id = r.request_id) as urls
      from mediadock.results r order by request_id::text`
    const wanted = jobs.map(({ requestId, source, id, link }) => ({
      request_id: requestId,
      source_name: source,
      external_id: id,
      urls: [link],
    }))
    expect([...rows]).toEqual(wanted.toSorted((a, b) => (a.request_id < b.request_id ? -1 : 1)))
    expect(
      await sql`select request_id, status, media_complete from states_seen group by 1, 2, 3 having count(*) > 1`,
    ).toEqual([])
    expect(await sql`select from mediadock.deliveries where parked_reason is not null`).toEqual([])

    // Media that still exist are archived. Missing ones are given up after four tries within two minutes.
    await eventually(async () => {
      const [copies] = await sql`
        select count(*) filter (where archived_url is not null)::int as kept,
          count(*) filter (where archive_error like 'gone%')::int as gone from mediadock.media`
      const gone = jobs.filter(({ fate }) => fate === 'link expired').length
      return expect(copies).toMatchObject({ kept: jobs.length - gone, ...(long && { gone }) })
    }, 240_000)
  },
)
