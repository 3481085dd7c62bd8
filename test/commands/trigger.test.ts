import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import type { TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startProviderStand } from '../support/provider-stand.ts'
import { liveKey, sandboxKey, type TestReceiver } from '../support/receiver.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { mediadockHere } from './mediadock.ts'

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

const trigger = (env: Record<string, string>, ...args: string[]) =>
  mediadockHere(env, 'trigger', ...args, '--url', receiver.webhookUrl)
const idIn = (stdout: string) => /^request_id (\S+)\nwebhook_id (\S+)$/m.exec(stdout)

it.each([
  ['ok', [/^200 .*accepted/], 'image'],
  ['error', [/^200 .*accepted/], 'FAILED'],
  ['multi-image', [/^200 .*accepted/], 'image'],
  ['video', [/^200 .*accepted/], 'video'],
  ['audio', [/^200 .*accepted/], 'audio'],
  ['duplicate', [/^200 .*accepted/, /^200 .*duplicate/], 'image'],
  ['bad-signature', [/^401 .*invalid_signature/], 'no_matching_secret'],
  ['stale', [/^401 .*invalid_signature/], 'timestamp_too_old'],
])('mediadock trigger %s sends that kind, prints the answers, and exits with 0', async (kind, answers, becomes) => {
  const { code, stdout, stderr } = await trigger({}, kind)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const lines = stdout.split('\n')
  answers.forEach((answer, at) => expect(lines[at]).toMatch(answer))
  const [, requestId = '', webhookId = ''] = idIn(stdout) ?? []
  expect(lines).toHaveLength(answers.length + 3)
  const became = await eventually(async () => {
    const [row] = await database.sql`
      select coalesce((select kind from mediadock.media where request_id = ${requestId} limit 1), (select status from mediadock.results where request_id = ${requestId}),
        (select reason from mediadock.arrivals where webhook_id = ${webhookId} and outcome = 'refused')) as became`
    return row?.['became'] ?? undefined
  })
  expect(became).toBe(becomes)
})

it('exits with 1 for an unexpected answer, and with 2 for wrong usage', async () => {
  expect(
    (await mediadockHere({}, 'trigger', 'ok', '--secret', 'whsec_nobody', '--url', receiver.webhookUrl)).code,
  ).toBe(1)
  expect(await trigger({}, 'bananas')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('trigger takes one of ok, error'),
  })
  expect(await trigger({ NODE_ENV: 'production', GENERATION_KEYS: '' }, 'ok')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('use --secret-file'),
  })
})

it('reports the address and the setting if nothing listens on the port', async () => {
  expect(
    await mediadockHere({}, 'trigger', 'ok', '--secret', 'whsec_nobody', '--url', 'http://127.0.0.1:2/'),
  ).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/no answer from http:\/\/127.0.0.1:2\/.*PORT/),
  })
})

it('signs with the secret of --secret-file or TRIGGER_SECRET', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-secret-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  const file = path.join(folder, 'secret.txt')
  await fs.writeFile(file, `${sandboxKey.signing_secret}\n`)
  expect(await trigger({ TRIGGER_SECRET: 'whsec_nobody' }, 'ok', '--secret-file', file)).toMatchObject({
    code: 0,
    stderr: '',
  })
  expect(await trigger({ GENERATION_KEYS: '', TRIGGER_SECRET: sandboxKey.signing_secret }, 'ok')).toMatchObject({
    code: 0,
    stderr: '',
  })
  expect((await trigger({ TRIGGER_SECRET: 'whsec_nobody' }, 'ok')).code).toBe(1)
  expect(await trigger({}, 'ok', '--secret', 'x', '--secret-file', file)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('both'),
  })
  await fs.writeFile(file, '\n')
  expect(await trigger({}, 'ok', '--secret-file', file)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('is empty'),
  })
})

it('prints a foreign answer as one line without control characters', async () => {
  const stand = await startProviderStand()
  onTestFinished(stand.close)
  stand.answer((_id, _req, res) => void res.end('\u001b]0;owned\u0007\nrequest_id forged\u202e\u0085'))
  const { stdout } = await mediadockHere({}, 'trigger', 'ok', '--url', `${stand.url}/webhooks`)
  const [line, second] = stdout.split('\n')
  expect(line).toBe('200 ·]0;owned· request_id forged··')
  expect(second).toMatch(/^request_id [0-9a-f-]{36}$/)
})

it('signs with the first key of GENERATION_KEYS_FILE', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-keys-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  const file = path.join(folder, 'keys.json')
  await fs.writeFile(file, JSON.stringify([sandboxKey, liveKey]))
  const requestId = '2f0d6c1e-0000-4000-8000-000000000001'
  const { code, stderr } = await trigger(
    { GENERATION_KEYS: '', GENERATION_KEYS_FILE: file },
    'error',
    '--request-id',
    requestId,
  )
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const [row] = await database.sql`select key_name from mediadock.deliveries where request_id = ${requestId}`
  expect(row).toEqual({ key_name: 'sandbox' })
  expect(await trigger({ GENERATION_KEYS_FILE: file }, 'ok')).toMatchObject({
    code: 78,
    stderr: expect.stringContaining('both set'),
  })
  expect(await trigger({ GENERATION_KEYS: '', GENERATION_KEYS_FILE: `${file}.not` }, 'ok')).toMatchObject({
    code: 78,
    stderr: expect.stringContaining('GENERATION_KEYS_FILE cannot be read'),
  })
})
