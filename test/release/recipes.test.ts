import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { removeMedia } from '../../src/receiver/archive/removal.ts'
import { startProcess } from '../platform/support/processes.ts'
import { freePort } from '../provider/support/free-port.ts'
import { mediaStand, pngOf, temporaryFolder } from '../receiver/archive/media-stand.ts'
import { childEnv } from '../support/child-env.ts'
import { preferredServer } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../support/provider-stand.ts'
import { deliver, failed, okImage } from '../support/webhooks.ts'
import { withReceiver, type WithReceiver } from '../support/with-receiver.ts'
import { writeProject } from './support/recipe-project.ts'

const root = path.resolve(import.meta.dirname, '../..')

/** The properties of a column, in the database's words. */
const types: Record<string, string> = {
  uuid: 'uuid',
  text: 'text',
  jsonb: 'jsonb',
  boolean: 'boolean',
  numeric: 'numeric',
  timestamp: 'timestamp with time zone',
  integer: 'integer',
  bigint: 'bigint',
  doublePrecision: 'double precision',
  UUID: 'uuid',
  Text: 'text',
  JSONB: 'jsonb',
  Boolean: 'boolean',
  Numeric: 'numeric',
  DateTime: 'timestamp with time zone',
  Integer: 'integer',
  BigInteger: 'bigint',
  Float: 'double precision',
}

describe('docs/recipes', () => {
  let its: WithReceiver & { stand: ProviderStand }
  let folder: string
  let blocks: { language: string; text: string }[]
  let env: Record<string, string>

  beforeAll(async () => {
    const recipes = path.join(root, 'docs/recipes')
    const pages = await Promise.all(
      (await fs.readdir(recipes)).map((name) => fs.readFile(path.join(recipes, name), 'utf8')),
    )
    const page = pages.join('\n')
    blocks = [...page.matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(([, language = '', text = '']) => ({ language, text }))
    folder = await writeProject(blocks.filter(({ language }) => language === 'ts').map(({ text }) => text))
    its = await withReceiver({ server: preferredServer, stand: true, followsUp: true })
    its.stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    env = { ...childEnv, DATABASE_URL: its.database.url, MEDIADOCK_URL: its.receiver.internalUrl }
    for (const statement of statementsOf('create schema')) await its.database.sql.unsafe(statement)
  })
  afterAll(async () => {
    await its.stop()
    await fs.rm(folder, { recursive: true })
  })

  const statementsOf = (words: string) =>
    blocks.flatMap(({ language, text }) => (language === 'sql' && text.includes(words) ? [text] : []))
  const start = (file: string, given: Record<string, string> = {}) =>
    startProcess(process.execPath, [file], { cwd: folder, env: { ...env, ...given } })
  const land = async () => {
    const { requestId, body } = okImage()
    await deliver(its.receiver.webhookUrl, body)
    await eventually(
      async () =>
        (await its.database.sql`select from mediadock.feed where request_id = ${requestId} and media_complete`).length >
        0,
    )
    return requestId
  }
  const linksOf = (id: string) => [0, 1].map((at) => `https://media.test/${id}-${at}.png`)

  it('compile completely', async () => {
    const tsc = path.join(root, 'node_modules/typescript/bin/tsc')
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', folder]).catch(
      (error: { stdout: string }) => error,
    )
    expect(stdout).toBe('')
  })

  it.each(['ts', 'python'])('have every column of the views, in %s, with its type', async (language) => {
    for (const name of ['results', 'media']) {
      const columns = await its.database.sql`
        select attname as name, format_type(atttypid, null) as type from pg_attribute
        where attrelid = ${`mediadock.${name}`}::regclass and attnum > 0 and not attisdropped order by attnum`
      const model =
        blocks.find((block) => block.language === language && block.text.includes('duration_seconds'))?.text ?? ''
      const [, part = ''] =
        (language === 'ts'
          ? new RegExp(`view\\('${name}', \\{([^]*?)\\n {2}\\}\\)`)
          : new RegExp(`"${name}"([^]*?)(?:\\n\\n\\n|$)`)
        ).exec(model) ?? []
      const printed =
        language === 'ts'
          ? [...part.matchAll(/: (\w+)\('(\w+)'/g)].map(([, type = '', column]) => ({
              name: column,
              type: types[type],
            }))
          : [...part.matchAll(/(\w+) = Column\((?:"(\w+)", )?(\w+)/g)].map(([, own, given, type = '']) => ({
              name: given ?? own,
              type: types[type],
            }))
      expect(printed).toEqual([...columns])
    }
  })

  it('read a result and its media with the models', async () => {
    const id = await land()
    const { stdout } = await promisify(execFile)(process.execPath, ['show-result.ts', id], { cwd: folder, env })
    expect(JSON.parse(stdout)).toEqual(
      linksOf(id).map((url) => ({ status: 'COMPLETED', order: null, landedAt: expect.stringContaining('T'), url })),
    )
  })

  it('handle each change once, although one of two workers is killed', async () => {
    const { sql } = its.database
    const [killed, other] = [start('mailer.ts'), start('mailer.ts')]
    const ids = [await land(), await land()]
    const mails = () => sql`select position, request_id, line from mailer.mails order by position`
    await eventually(async () => (await mails()).length >= 2)
    killed.kill('SIGKILL')
    ids.push(await land())
    await eventually(async () => (await mails()).some(({ request_id }) => request_id === ids[2]))
    other.kill('SIGTERM')
    expect(await other.exit).toMatchObject({ code: 0 })
    ids.push(await land())
    start('mailer.ts')
    const changes = await sql`select position, request_id from mediadock.feed order by position`
    await eventually(async () => (await mails()).length === changes.length)
    const found = await mails()
    expect(found.map(({ position, request_id }) => ({ position, request_id }))).toEqual([...changes])
    expect(found.filter(({ request_id }) => request_id === ids[3]).map(({ line }) => line)).toContain(
      'COMPLETED, 2 files',
    )
  })

  it("show a page's pictures by a long poll, and none if the generation failed", async () => {
    const port = await freePort()
    const service = start('pictures.ts', { PORT: `${port}` })
    const { waitForPictures }: { waitForPictures: (url: string) => Promise<string[]> } = await import(
      path.join(folder, 'wait-for-pictures.ts')
    )
    await eventually(() => fetch(`http://127.0.0.1:${port}/`).then(() => true))
    const at = (id: string) => `http://127.0.0.1:${port}/pictures/${id}`
    await expect(waitForPictures(at(randomUUID()))).rejects.toThrow('the request is unknown')
    const { requestId, body } = okImage()
    await its.database.sql`insert into mediadock.requests (request_id) values (${requestId})`
    const waited = waitForPictures(at(requestId))
    // First only what the webhook carried, then the full result.
    its.stand.answer((_id, _req, res) => json(res, 500, {}))
    await deliver(its.receiver.webhookUrl, body)
    const isLanded = async () =>
      (await its.database.sql`select from mediadock.feed where request_id = ${requestId}`).length > 0
    await eventually(isLanded)
    its.stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    await its.receiver.deps.background.reconcileOne(requestId)
    expect(await waited).toEqual(linksOf(requestId))
    const broken = failed()
    await its.database.sql`insert into mediadock.requests (request_id) values (${broken.requestId})`
    await deliver(its.receiver.webhookUrl, broken.body)
    expect(await waitForPictures(at(broken.requestId))).toEqual([])
    service.kill('SIGTERM')
    expect(await service.exit).toEqual({ code: 0, signal: null })
  })

  it("show a page's pictures by an event stream, landed before or after it was opened", async () => {
    const port = await freePort()
    start('picture-events.ts', { PORT: `${port}` })
    await eventually(() => fetch(`http://127.0.0.1:${port}/`).then(() => true))
    const events = async (id: string) => (await fetch(`http://127.0.0.1:${port}/pictures/${id}/events`)).text()
    const { requestId, body } = okImage()
    const opened = events(requestId)
    await deliver(its.receiver.webhookUrl, body)
    expect(await opened).toBe(`data: ${JSON.stringify(linksOf(requestId))}\n\n`)
    expect(await events(requestId)).toBe(`data: ${JSON.stringify(linksOf(requestId))}\n\n`)
  })

  it('serve a picture after the provider deleted it, and none that was removed', async () => {
    const archive = await temporaryFolder()
    const internalToken = 'a token of more than thirty-two characters'
    const own = await withReceiver({
      server: preferredServer,
      stand: true,
      followsUp: true,
      settings: { mediaArchive: { kind: 'file', root: archive.root }, internalToken },
    })
    onTestFinished(async () => {
      await own.stop()
      await archive.remove()
    })
    const { serve, land: landPictures } = mediaStand(own)
    const picture = pngOf(60)
    let isThere = true
    const link = serve('a.png', (res) => (isThere ? res.writeHead(200).end(picture) : res.writeHead(403).end()))
    const id = await landPictures([link, serve('never.png', (res) => res.writeHead(500).end())])
    await eventually(
      async () =>
        (await own.database.sql`select from mediadock.media where request_id = ${id} and sha256 is not null`).length >
        0,
    )
    isThere = false
    const port = await freePort()
    const service = start('files.ts', {
      PORT: `${port}`,
      DATABASE_URL: own.database.url,
      MEDIADOCK_URL: own.receiver.internalUrl,
      INTERNAL_TOKEN: internalToken,
    })
    const get = (at: string, headers: Record<string, string> = {}) =>
      fetch(`http://127.0.0.1:${port}/files/${at}`, { headers, redirect: 'manual' })
    await eventually(() => get('').then(() => true))
    const whole = await get(`${id}/image/0`)
    expect([whole.status, whole.headers.get('content-type'), Buffer.from(await whole.arrayBuffer())]).toEqual([
      200,
      'image/png',
      picture,
    ])
    expect(whole.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox")
    const part = await get(`${id}/image/0`, { range: 'bytes=1-3' })
    expect([part.status, await part.text()]).toEqual([206, 'PNG'])
    expect((await get(`${id}/image/0`, { 'if-none-match': whole.headers.get('etag') ?? '' })).status).toBe(304)
    const notYet = await get(`${id}/image/1`)
    expect([notYet.status, notYet.headers.get('location')]).toEqual([302, expect.stringContaining('never.png')])
    await own.database.sql`
      update mediadock.media set url = 'file:///srv/media/a.png' where request_id = ${id} and position = 1`
    const inBase64 = await get(`${id}/image/1`)
    expect([inBase64.status, inBase64.headers.get('location')]).toEqual([503, null])
    expect((await get(`${id}/image/2`)).status).toBe(404)
    await removeMedia(own.receiver.deps.db, id)
    expect((await get(`${id}/image/0`)).status).toBe(410)
    service.kill('SIGTERM')
    expect(await service.exit).toEqual({ code: 0, signal: null })
  })

  it('generate each order once, although the service is killed after its submits', async () => {
    const onlyFetches = (id: string, _req: unknown, res: ServerResponse) => json(res, 200, imageResult(id, 2))
    onTestFinished(() => its.stand.answer(onlyFetches))
    const charged = new Map<string, string>()
    its.stand.answer((id, req, res) => {
      if (req.method !== 'POST') return json(res, 202, { request_id: id, status: 'IN_QUEUE', queue_position: 0 })
      const key = String(req.headers['idempotency-key'])
      const request_id = charged.get(key) ?? randomUUID()
      charged.set(key, request_id)
      const links = { status_url: 'https://x.test/s', response_url: 'https://x.test/r', cancel_url: 'https://x.test/c' }
      return json(res, 200, { request_id, status: 'IN_QUEUE', queue_position: 0, ...links, cost: 4 })
    })
    await fs.writeFile(path.join(folder, 'orders.txt'), 'a boat\na harbour\n')
    const killed = start('generate.ts', { KEY_NAME: 'live' })
    await eventually(() => charged.size === 2)
    killed.kill('SIGKILL')
    await killed.exit
    const service = start('generate.ts', { KEY_NAME: 'live' })
    await service.says(/ IN_QUEUE /)
    its.stand.answer(onlyFetches)
    for (const id of charged.values()) await deliver(its.receiver.webhookUrl, okImage(id).body)
    expect(await service.exit).toEqual({ code: 0, signal: null })
    expect(charged.size).toBe(2)
    for (const [key, request_id] of charged)
      expect(JSON.parse(await fs.readFile(path.join(folder, `pictures/${key}.json`), 'utf8'))).toEqual({
        request_id,
        urls: linksOf(request_id),
      })
  })

  it('count by model', async () => {
    await land()
    const [statement = ''] = statementsOf('percentile_cont')
    const [landed] = await its.database
      .sql`select count(*) as n, sum(cost) as cost from mediadock.results where model = 'aurora-image'`
    const rows = await its.database.sql.unsafe(statement)
    expect(rows.find((row) => row['model'] === 'aurora-image')).toMatchObject({
      landed: landed?.['n'],
      failed: '0',
      // As the stand has it: nine seconds, months ago.
      seconds_median: 9,
      seconds_95: 9,
      late: landed?.['n'],
      cost: landed?.['cost'],
    })
  })
})
