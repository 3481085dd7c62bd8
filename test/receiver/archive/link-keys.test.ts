import { randomUUID } from 'node:crypto'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, beforeEach, expect, it } from 'vitest'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { videoOfPng } from '../../platform/support/crafted-media.ts'
import { preferredServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { withReceiver, type WithReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, failedCopy, pngOf, retryNow, temporaryFolder } from './media-stand.ts'

const signing_secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const video = videoOfPng(pngOf(20))
type Seen = { origin: string; path: string; gemini: unknown; bearer: unknown }

let its: WithReceiver
let api: string
let elsewhere: string
let seen: Seen[]
let answer: (req: http.IncomingMessage, res: http.ServerResponse) => void
const operations = new Map<string, string>()

/** The API, and another server, on origins of their own. */
async function listening(): Promise<{ url: string; server: http.Server }> {
  const server = http.createServer((req, res) => {
    const path = req.url ?? ''
    const origin = `http://${req.headers.host}`
    const uri = operations.get(path.replace('/v1beta/', '')) ?? operations.get(path.replace('/videos/', ''))
    if (uri !== undefined) {
      const name = path.replace('/v1beta/', '')
      const generateVideoResponse = { generatedSamples: [{ video: { uri } }] }
      const job = { id: path.replace('/videos/', ''), status: 'completed', unsigned_urls: [uri] }
      return void res.end(JSON.stringify({ ...job, name, done: true, response: { generateVideoResponse } }))
    }
    seen.push({ origin, path, gemini: req.headers['x-goog-api-key'], bearer: req.headers.authorization })
    answer(req, res)
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

const keysWith = (api_key: string, more: object = {}, others: object[] = []) =>
  withSources(
    keysOf(liveKey),
    JSON.stringify([
      {
        name: 'veo',
        kind: 'gemini',
        api_url: api,
        keys: [{ name: 'veo-key', api_key, signing_secret, ...more }, ...others],
      },
      { name: 'router', kind: 'openrouter-video', api_url: api, keys: [{ name: 'r', api_key: 'or', signing_secret }] },
      { name: 'pictures', kind: 'replicate', api_url: api, keys: [{ name: 'p', api_key: 'rp', signing_secret }] },
    ]),
  )

beforeAll(async () => {
  const folder = await temporaryFolder()
  const servers = [await listening(), await listening()] as const
  ;[api, elsewhere] = [servers[0].url, servers[1].url]
  const settings = { keys: keysWith('old'), mediaArchive: { kind: 'file', root: folder.root } as const }
  its = await withReceiver({ server: preferredServer, settings })
  return async () => {
    await its.stop()
    await folder.remove()
    for (const { server } of servers) server.close().closeAllConnections()
  }
})

beforeEach(async () => {
  seen = []
  answer = (_req, res) => void res.end(video)
  its.receiver.setKeys(keysWith('old'))
  await its.database.sql`delete from mediadock.call_budgets`
})

/** Lands a result of a source whose video has this link, and returns the request's id. */
async function landed(link: string, key_name = 'veo-key'): Promise<string> {
  const external_id = key_name === 'veo-key' ? `models/veo/operations/${randomUUID()}` : `job-${randomUUID()}`
  operations.set(external_id, link)
  const url = new URL('/api/requests', its.receiver.internalUrl)
  const body = JSON.stringify({ external_id, key_name, model: 'veo' })
  const tracked = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  const { request_id } = (await tracked.json()) as { request_id: string }
  await eventually(async () => (await its.receiver.deps.background.reconcileOne(request_id)) !== undefined)
  return request_id
}
const to = (location: string) => (res: http.ServerResponse) => void res.writeHead(302, { location }).end()
const isArchived = async (requestId: string) =>
  (await archivedMedia(its.database, requestId))[0]?.archive_error === null
const healthOf = async (key: string) => {
  const [row] = await its.database.sql`
    select refusals, blocked_reason from mediadock.call_budgets where key_name = ${key}`
  return row
}

it.each([
  ['veo-key', { gemini: 'old', bearer: undefined }],
  ['r', { gemini: undefined, bearer: 'Bearer or' }],
])('sends the key %s to the API of its source, and not to where that redirects', async (key, sent) => {
  answer = (req, res) => (req.url === '/content' ? to(`${elsewhere}/signed`)(res) : void res.end(video))
  expect(await isArchived(await landed(`${api}/content`, key))).toBe(true)
  expect(seen).toEqual([
    { origin: api, path: '/content', ...sent },
    { origin: elsewhere, path: '/signed', gemini: undefined, bearer: undefined },
  ])
})

it('sends no key to another origin, nor to the API after another origin redirected there', async () => {
  answer = (req, res) => (req.url === '/first' ? to(`${api}/private`)(res) : void res.end(video))
  expect(await isArchived(await landed(`${elsewhere}/first`))).toBe(true)
  answer = (req, res) => {
    if (req.url === '/out') return to(`${elsewhere}/back`)(res)
    return req.url === '/back' ? to(`${api}/private`)(res) : void res.end(video)
  }
  expect(await isArchived(await landed(`${api}/out`))).toBe(true)
  expect(seen.map(({ path, gemini }) => [path, gemini])).toEqual([
    ['/first', undefined],
    ['/private', undefined],
    ['/out', 'old'],
    ['/back', undefined],
    ['/private', undefined],
  ])
})

it('counts the download as a call of the key, which waits for one', async () => {
  await its.database.sql`
    insert into mediadock.call_budgets
      (key_name, slots, submit_slots, trial_slots, slots_until, granted, blocked_until, blocked_reason)
    select 'r', none, none, none, 0, false, now() + interval '1 hour', 'rate_limited'
    from (select array_fill(0, array[61]) as none) as n`
  const requestId = randomUUID()
  await its.database.sql`
    insert into mediadock.requests (request_id, source_name, key_name) values (${requestId}, 'router', 'r')`
  await its.database.sql`
    insert into mediadock.media_copies (request_id, kind, position, url, state, due_at)
    values (${requestId}, 'video', 0, ${`${api}/content`}, 'waiting', now())`
  expect(await failedCopy(its.database, requestId, 'unreachable', 0)).toMatchObject({
    state: 'waiting',
    tries: 0,
    trouble: 'the key r has no call left (rate_limited)',
  })
  expect(seen).toEqual([])
})

it('rests a key that is refused, and copies with the one that replaces it', async () => {
  answer = (req, res) => (req.headers['x-goog-api-key'] === 'new' ? void res.end(video) : res.writeHead(401).end())
  const requestId = await landed(`${api}/content`)
  const copy = await failedCopy(its.database, requestId, 'unreachable', 0)
  expect(copy).toMatchObject({ state: 'waiting', tries: 0, trouble: expect.stringContaining('answered 401') })
  expect(await healthOf('veo-key')).toEqual({ refusals: 1, blocked_reason: 'unauthorized' })

  its.receiver.setKeys(keysWith('new'))
  await its.database.sql`update mediadock.call_budgets set blocked_until = now()`
  await retryNow(its.database, requestId)
  expect(await isArchived(requestId)).toBe(true)
  expect(await healthOf('veo-key')).toMatchObject({ refusals: 0 })
})

it.each([
  ['waits where the source has no usable key', [], 'the source veo has no usable key', undefined],
  [
    'sends another key of the source where that of the request is retired',
    [{ name: 'next', api_key: 'new', signing_secret: `whsec_${Buffer.alloc(32, 2).toString('base64')}` }],
    undefined,
    'new',
  ],
])('%s', async (_, others, trouble, sent) => {
  // Lands while the key is in use, and is copied when it is not.
  answer = (_req, res) => res.writeHead(503).end()
  const requestId = await landed(`${api}/content`)
  await failedCopy(its.database, requestId, 'unreachable', 1)
  seen = []
  answer = (_req, res) => void res.end(video)
  its.receiver.setKeys(keysWith('old', { retired: true }, others))
  await retryNow(its.database, requestId)
  if (trouble === undefined) expect(await isArchived(requestId)).toBe(true)
  else
    await eventually(async () => {
      const copy = await failedCopy(its.database, requestId, 'unreachable', 1)
      return copy.trouble === trouble && copy.state === 'waiting' && copy.tries === 1
    })
  expect(seen.map(({ gemini }) => gemini)).toEqual(sent === undefined ? [] : [sent])
})

it('takes a 403 for a refusal of the key where the key was refused before', async () => {
  answer = (_req, res) => res.writeHead(403).end()
  await its.database.sql`
    insert into mediadock.call_budgets (key_name, slots, submit_slots, trial_slots, slots_until, granted, refusals)
    select 'veo-key', none, none, none, 0, false, 3 from (select array_fill(0, array[61]) as none) as n`
  const requestId = randomUUID()
  await its.database.sql`
    insert into mediadock.requests (request_id, source_name, key_name) values (${requestId}, 'veo', 'veo-key')`
  await its.database.sql`
    insert into mediadock.media_copies (request_id, kind, position, url, state, due_at, expires_at)
    values (${requestId}, 'video', 0, ${`${api}/content`}, 'waiting', now(), now() + interval '1 day')`
  expect(await failedCopy(its.database, requestId, 'unreachable', 0)).toMatchObject({ state: 'waiting', tries: 0 })
  expect(await healthOf('veo-key')).toEqual({ refusals: 4, blocked_reason: 'unauthorized' })
})

it('does not rest a working key for one file that is refused, and tries that for hours', async () => {
  answer = (_req, res) => res.writeHead(403).end()
  const requestId = await landed(`${api}/content`)
  const copy = await failedCopy(its.database, requestId, 'unreachable', 1)
  expect(copy).toMatchObject({ state: 'waiting', trouble: 'the source answered 403 to its key' })
  expect(await healthOf('veo-key')).toEqual({ refusals: 0, blocked_reason: null })
})

it('rests a key that is limited', async () => {
  answer = (_req, res) => res.writeHead(429, { 'retry-after': '60' }).end()
  const requestId = await landed(`${api}/content`)
  expect(await failedCopy(its.database, requestId, 'unreachable', 0)).toMatchObject({ state: 'waiting', tries: 0 })
  expect(await healthOf('veo-key')).toEqual({ refusals: 0, blocked_reason: 'rate_limited' })
})

it('sends no key for a source whose links need none', async () => {
  answer = (_req, res) => res.writeHead(403).end()
  const requestId = randomUUID()
  await its.database.sql`
    insert into mediadock.requests (request_id, source_name, key_name) values (${requestId}, 'pictures', 'p')`
  await its.database.sql`
    insert into mediadock.media_copies (request_id, kind, position, url, state, due_at)
    values (${requestId}, 'video', 0, ${`${api}/content`}, 'waiting', now())`
  expect(await failedCopy(its.database, requestId, 'gone', 1)).toMatchObject({ state: 'waiting' })
  expect(seen).toEqual([{ origin: api, path: '/content', gemini: undefined, bearer: undefined }])
})
