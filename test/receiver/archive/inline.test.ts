import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { senders } from '../../../src/commands/trigger.ts'
import { followFeed } from '../../../src/receiver/archive/archiver.ts'
import { claimCopies, type Copy } from '../../../src/receiver/archive/copies.ts'
import { copyMedia } from '../../../src/receiver/archive/copying.ts'
import { createDownloader } from '../../../src/receiver/archive/download.ts'
import { openFileStore } from '../../../src/receiver/archive/file-store.ts'
import type { ArchiveStore } from '../../../src/receiver/archive/store.ts'
import { deliveryId, sha256Hex, toDelivery } from '../../../src/receiver/domain/delivery.ts'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { falKeyOf, falKeySetOf } from '../../../src/wire/fal-signature.ts'
import { preferredServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json } from '../../support/provider-stand.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { withReceiver, type WithReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'
import { archivedMedia, dataUri, failedCopy, pngOf, retryNow, temporaryFolder, unknownResult } from './media-stand.ts'

/* Results of other sources whose media came as base64. */

const secret = Buffer.alloc(32, 7).toString('base64')
const model = 'me/app'
type Kind = 'replicate' | 'fal'
const kinds: Kind[] = ['replicate', 'fal']

let its: Awaited<ReturnType<typeof withStand>>
let root: string
/** The outputs that the stand answers to polls. */
const outputs = new Map<string, unknown>()

/** A receiver with both sources. Their results in base64 go to `archive`; only `isCopying` has a role that copies. */
async function withStand(archive: string, isCopying: boolean) {
  const place = { kind: 'file', root: archive } as const
  const settings = { mediaHosts: ['media.test'], ...(isCopying && { mediaArchive: place }) }
  const given = await withReceiver({ server: preferredServer, stand: true, settings })
  given.stand.answer((id, req, res) => {
    if (id === 'jwks') return json(res, 200, falKeySetOf(falKeyOf(Buffer.from(secret, 'base64'))))
    if (id === 'status') return json(res, 200, { status: 'COMPLETED' })
    const output = outputs.get(id)
    const isPrediction = req.url?.includes('/predictions/') === true
    if (output === undefined) return json(res, 404, {})
    return json(res, 200, isPrediction ? { id, status: 'succeeded', output } : output)
  })
  const keysWith = (at: typeof place | undefined) => {
    const keys = { replicate: { signing_secret: `whsec_${secret}` }, fal: {} }
    const more = { replicate: {}, fal: { account: 'me', key_set_url: `${given.stand.url}/jwks` } }
    const sources = kinds.map((kind) => ({
      name: kind,
      kind,
      api_url: given.stand.url,
      keys: [{ name: `${kind}-key`, api_key: 'x', ...keys[kind] }],
      ...more[kind],
    }))
    return withSources(keysOf(liveKey), JSON.stringify(sources), at)
  }
  const setArchive = async (at: typeof place | undefined) => {
    given.receiver.setKeys(keysWith(at))
    await eventually(() => given.receiver.deps.keys().sources.get('fal')?.secrets.length === 1)
  }
  await setArchive(place)
  return { ...given, place, setArchive }
}

beforeAll(async () => {
  const folder = await temporaryFolder()
  ;({ root } = folder)
  its = await withStand(root, true)
  return async () => {
    await its.stop()
    await folder.remove()
  }
})
beforeEach(() => outputs.clear())

/** A webhook with these pictures, as its source sends them in base64. */
function webhookOf(kind: Kind, pictures: readonly Buffer[]) {
  const jobId = randomUUID()
  const links = pictures.map((bytes) => dataUri(bytes))
  const images = links.map((url) => ({ url, width: 8, height: 8, content_type: 'image/png' }))
  const body = Buffer.from(
    JSON.stringify(
      kind === 'fal'
        ? { request_id: jobId, status: 'OK', payload: { images } }
        : { id: jobId, status: 'succeeded', output: links },
    ),
  )
  const signing = { id: jobId, jobId, account: 'me', secret, timestampSeconds: Math.floor(Date.now() / 1000) }
  const standard = { ...signing, secret: `whsec_${secret}` }
  const headers = { ...senders[kind]?.headers?.(body, kind === 'fal' ? signing : standard) }
  const { requestId } = requestIdOf(kind, jobId)
  return { kind, jobId, requestId, body, headers, output: kind === 'fal' ? { images } : links }
}

async function post({ receiver }: WithReceiver, { kind, body, headers }: ReturnType<typeof webhookOf>) {
  const response = await fetch(`${receiver.webhookUrl}/${kind}`, {
    method: 'POST',
    headers,
    body: new Uint8Array(body),
  })
  return response.json()
}

async function expectKept(database: WithReceiver['database'], requestId: string, pictures: readonly Buffer[]) {
  const rows = await archivedMedia(database, requestId)
  expect(rows.map(({ sha256, archive_error }) => [sha256, archive_error])).toEqual(
    pictures.map((bytes) => [sha256Hex(bytes), null]),
  )
  for (const [at, { url, archived_url }] of rows.entries()) {
    expect(url).toBe(archived_url)
    expect(await fs.readFile(fileURLToPath(url))).toEqual(pictures[at])
  }
  const [result] = await database.sql`
    select status, media_complete, output from mediadock.results where request_id = ${requestId}`
  const images = rows.map(({ url }) => expect.objectContaining({ url }))
  expect(result).toMatchObject({ status: 'COMPLETED', media_complete: true, output: { images } })
}

const track = ({ database }: WithReceiver, { kind, requestId }: ReturnType<typeof webhookOf>) =>
  database.sql`insert into mediadock.requests (request_id, source_name, key_name, model)
    values (${requestId}, ${kind}, ${`${kind}-key`}, ${model})`

describe.each(kinds)('media in base64 of %s', (kind) => {
  it.each([
    ['one picture', [pngOf(8)]],
    ['two pictures in a body that is read back from the queue', [pngOf(8), pngOf(9, 0, 'x'.repeat(80_000))]],
  ])('of a webhook lands and is archived: %s', async (_, pictures) => {
    const webhook = webhookOf(kind, pictures)
    expect(await post(its, webhook)).toEqual({ status: 'accepted' })
    await expectKept(its.database, webhook.requestId, pictures)
    const deliveries = await its.database.sql`
      select flags, parked_reason from mediadock.deliveries where request_id = ${webhook.requestId}`
    expect([...deliveries]).toEqual([{ flags: [], parked_reason: null }])
    expect(await post(its, webhook)).toEqual({ status: 'duplicate' })
  })

  it('of a poll lands, and is asked for again to be archived', async () => {
    const pictures = [pngOf(8), pngOf(9)]
    const webhook = webhookOf(kind, pictures)
    outputs.set(webhook.jobId, webhook.output)
    await track(its, webhook)
    expect(await its.receiver.deps.background.reconcileOne(webhook.requestId)).toBe('landed')
    await expectKept(its.database, webhook.requestId, pictures)
  })

  it('is parked without MEDIA_ARCHIVE, and lands with it from a replay', async () => {
    const pictures = [pngOf(8)]
    const webhook = webhookOf(kind, pictures)
    await its.setArchive(undefined)
    expect(await post(its, webhook)).toEqual({ status: 'parked' })
    await track(its, webhook)
    outputs.set(webhook.jobId, webhook.output)
    expect(await its.receiver.deps.background.reconcileOne(webhook.requestId)).toBe('invalid')
    const [poll] = await its.database.sql`
      select poll_detail from mediadock.requests where request_id = ${webhook.requestId}`
    expect(poll?.['poll_detail']).toContain('MEDIA_ARCHIVE')
    outputs.clear()
    await its.setArchive(its.place)
    const [delivery] = await its.database.sql`
      select id, parked_reason from mediadock.deliveries where request_id = ${webhook.requestId}`
    expect(delivery?.['parked_reason']).toBe('inline_media')
    const replayed = await call(its.receiver, `POST /api/deliveries/${delivery?.['id']}/replay`, { body: {} })
    expect(replayed).toMatchObject({ status: 200, json: { changes: [{ outcome: 'landed' }] } })
    await expectKept(its.database, webhook.requestId, pictures)
  })
})

it('does not hold the base64 beside the body while a delivery is stored', () => {
  const { jobId, body } = webhookOf('replicate', [pngOf(8)])
  const source = its.receiver.deps.keys().sources.get('replicate')
  if (source === undefined) throw new Error('the source is not configured')
  const key = { keyName: 'replicate-key', environment: 'live' } as const
  const arrived = { id: randomUUID(), webhookId: jobId, timestampSeconds: 0, receivedAt: new Date(), headers: {}, body }
  const { parsed } = toDelivery({ source, ...key, ...arrived })
  expect(parsed).toMatchObject({ report: { media: [{ kind: 'image' }], isInline: true } })
  expect(parsed).not.toHaveProperty('report.files')
})

describe('a process killed', () => {
  let idle: typeof its
  let store: ArchiveStore
  beforeAll(async () => {
    const folder = await temporaryFolder()
    idle = await withStand(folder.root, false)
    store = await openFileStore(folder.root)
    return async () => {
      await idle.stop()
      await folder.remove()
    }
  })

  const claimed = (requestId: string): Promise<Copy> =>
    eventually(async () => {
      await followFeed(idle.receiver.deps.db)
      return (await claimCopies(idle.receiver.deps.db, { limit: 10 })).find((copy) => copy.request_id === requestId)
    })
  const copied = async (copy: Copy, into = store) => {
    const downloader = createDownloader({ maxBytes: 1_000_000, mediaHosts: undefined, production: true })
    const { db, keys, logger } = idle.receiver.deps
    const deps = { db, keys, fetchRatePerMinute: 60, fetchResult: unknownResult, store: into, downloader, logger }
    return (await copyMedia(deps, copy, new AbortController().signal).finally(downloader.close)).outcome
  }
  const filesLeft = async () =>
    (await fs.readdir(store.spoolDir.replace(/incoming$/, ''), { recursive: true })).filter((name) =>
      /[0-9a-f]{64}\.png$|part$/.test(name),
    )

  it('after storing the delivery: another lands it', async () => {
    const picture = pngOf(8)
    const { kind, requestId, jobId, body } = webhookOf('replicate', [picture])
    const id = deliveryId(jobId, body, kind)
    await idle.database.sql`
      with stored as (
        insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, source_name, environment,
          signed_at, received_at, headers, body)
        values (${id}, ${jobId}, ${requestId}, 'OK', 'replicate-key', ${kind}, 'live', now(), now(), '{}', ${body})
        returning id)
      insert into mediadock.inbox (delivery_id, due_at, claims) select id, now() + interval '1 second', 1 from stored`
    expect(await copied(await claimed(requestId))).toBe('archived')
    await expectKept(idle.database, requestId, [picture])
  })

  it('after claiming the copy: another copies it from the stored body', async () => {
    const picture = pngOf(8)
    const webhook = webhookOf('fal', [picture])
    expect(await post(idle, webhook)).toEqual({ status: 'accepted' })
    await claimed(webhook.requestId)
    await retryNow(idle.database, webhook.requestId)
    expect(await copied(await claimed(webhook.requestId))).toBe('archived')
    await expectKept(idle.database, webhook.requestId, [picture])
  })

  it('after storing the file: another ends the copy, and the file is stored once', async () => {
    const picture = pngOf(8)
    const webhook = webhookOf('replicate', [picture])
    expect(await post(idle, webhook)).toEqual({ status: 'accepted' })
    const before = await filesLeft()
    const [kept, continued] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const hung = copied(await claimed(webhook.requestId), {
      ...store,
      keep: async (...file) => {
        await store.keep(...file)
        kept.resolve()
        await continued.promise
      },
    })
    await kept.promise
    await retryNow(idle.database, webhook.requestId)
    expect(await copied(await claimed(webhook.requestId))).toBe('archived')
    // The first was only slow: it ends nothing.
    continued.resolve()
    expect(await hung).toBe('no_longer_ours')
    await expectKept(idle.database, webhook.requestId, [picture])
    const name = `${sha256Hex(picture)}.png`
    expect((await filesLeft()).filter((file) => !before.includes(file)).map((file) => path.basename(file))).toEqual([
      name,
    ])
    // One for the result, and one for its copy.
    await eventually(async () => {
      const changes = await idle.database.sql`
        select 1 from mediadock.feed where request_id = ${webhook.requestId} and media_complete`
      return changes.length === 2
    })
  })

  it('after landing a poll: another asks again, and gives up what the source has forgotten', async () => {
    const webhook = webhookOf('replicate', [pngOf(8)])
    outputs.set(webhook.jobId, webhook.output)
    await track(idle, webhook)
    expect(await idle.receiver.deps.background.reconcileOne(webhook.requestId)).toBe('landed')
    expect(await copied(await claimed(webhook.requestId))).toBe('put_off')
    expect(await failedCopy(idle.database, webhook.requestId, 'gone', 1)).toMatchObject({
      trouble: 'the content was requested from the source again: not_found',
    })
  })
})
