import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { atOnce } from '../../src/receiver/domain/source.ts'
import { kinds } from '../../src/receiver/sources/kinds.ts'
import { falKeyOf, falKeySetOf } from '../../src/wire/fal-signature.ts'
import { startWebhookCatcher, type Caught } from '../provider/support/webhook-catcher.ts'
import { liveKey } from '../support/receiver.ts'
import { mediadockHere } from './mediadock.ts'

const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const secretKey = randomBytes(32)
let catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
let env: Record<string, string>

beforeAll(async () => {
  catcher = await startWebhookCatcher()
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-sources-'))
  const file = path.join(folder, 'sources.json')
  const keys = [{ name: 'a', api_key: 'a', signing_secret: secret }]
  const pictures = { name: 'pictures', kind: 'replicate', keys }
  await fs.writeFile(file, JSON.stringify([pictures]))
  env = {
    GENERATION_KEYS: JSON.stringify([liveKey]),
    SOURCES_FILE: file,
    PROVIDER_SECRET_KEY: secretKey.toString('base64'),
  }
  return async () => {
    await fs.rm(folder, { recursive: true })
  }
})
afterAll(() => catcher.close())

/** What the command sent, and its exit code. */
async function triggered(args: string[], more: Record<string, string> = {}) {
  const url = `${catcher.origin}/webhooks`
  const { code, stdout, stderr } = await mediadockHere({ ...env, ...more }, 'trigger', ...args, '--url', url)
  return { code, stdout, stderr, caught: catcher.caught.splice(0) }
}

const [publicKey] = falKeySetOf(falKeyOf(secretKey)).keys
const x = String(Object(publicKey).x)
const secretsOf = (kind: string) =>
  kind === 'fal' ? [{ name: 'a', signingSecret: x, account: 'local' }] : [{ name: 'a', signingSecret: secret }]

function read(kind: string, { headers, body }: Caught) {
  const api = kinds[kind] ?? expect.fail(kind)
  const arrived = { header: (name: string) => [headers[name] ?? []].flat(), body }
  const verification = atOnce(api.verify(arrived, secretsOf(kind), Math.floor(Date.now() / 1000)))
  return { ok: verification.ok, identity: api.identify(arrived), parsed: api.parse(JSON.parse(body.toString())) }
}

it.each(Object.keys(kinds))('a webhook of %s has the signature and the body of its kind', async (kind) => {
  const { code, stdout, stderr, caught } = await triggered([kind], kind === 'fal' ? {} : { TRIGGER_SECRET: secret })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const [, jobId = ''] = /^request_id (\S+)$/m.exec(stdout) ?? []
  const [one = expect.fail()] = caught
  const { ok, identity, parsed } = read(kind, one)
  expect({ ok, identity }).toMatchObject({ ok: true, identity: { ok: true } })
  expect(parsed).not.toMatchObject({ kind: 'unreadable' })
  expect(JSON.stringify(parsed)).toContain(jobId)
})

it.each(['fal', 'replicate', 'openrouter-video', 'standard-webhooks'])('a failure of %s is one', async (kind) => {
  const { caught } = await triggered([kind, 'error'], kind === 'fal' ? {} : { TRIGGER_SECRET: secret })
  expect(read(kind, caught[0] ?? expect.fail()).parsed).toMatchObject({ kind: 'report', report: { status: 'FAILED' } })
})

it('a duplicate is sent twice under one id, and a bad signature is one', async () => {
  const { caught } = await triggered(['replicate', 'duplicate', '--source', 'pictures'])
  const [first = expect.fail(), second = expect.fail()] = caught
  expect(second.headers['webhook-id']).toBe(first.headers['webhook-id'])
  expect(read('replicate', first).ok).toBe(true)
  const forged = await triggered(['replicate', 'bad-signature', '--source', 'pictures'])
  expect(forged.code).toBe(1)
  expect(read('replicate', forged.caught[0] ?? expect.fail()).ok).toBe(false)
})

it('names the source that is missing, and refuses a bad signature where there is none', async () => {
  expect(await triggered(['replicate'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no source replicate is in SOURCES_FILE: use --source'),
  })
  expect(await triggered(['luma', 'bad-signature'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('webhooks of luma are not signed'),
  })
})
