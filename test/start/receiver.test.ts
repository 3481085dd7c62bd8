import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { signStandardWebhook } from '../../src/wire/standard-webhooks.ts'
import { openLaptop } from '../laptop/support/laptop.ts'
import { dataUri, pngOf } from '../receiver/archive/media-stand.ts'
import { eventually } from '../support/eventually.ts'
import { keyNamed, startProductionReceiver } from './support/receiver-process.ts'

const first = 'whsec_first_secret'
const second = 'whsec_second_secret'

it('in production embeds nothing, creates no folder, writes only JSON lines and survives SIGHUP without a keys file; after SIGTERM /readyz is 503 at once while deliveries are still accepted, then exit 0', async () => {
  const { program, folder, base, internalBase, deliver, database } = await startProductionReceiver({
    GENERATION_KEYS_FILE: '',
    GENERATION_KEYS: JSON.stringify([keyNamed('first', first)]),
    SHUTDOWN_GRACE_SECONDS: '60',
  })
  await eventually(async () => (await fetch(`${base}/readyz`)).status === 200)
  await eventually(async () => (await fetch(`${internalBase}/readyz`)).status === 200)
  for (const time of [1, 2]) {
    program.kill('SIGHUP')
    await eventually(() => program.output().match(/"msg":"SIGHUP changes nothing/g)?.length === time)
  }
  expect(await deliver(first)).toBe(200)
  const began = performance.now()
  program.kill('SIGTERM')
  await eventually(async () => (await fetch(`${base}/readyz`)).status === 503)
  expect((await fetch(`${internalBase}/readyz`)).status).toBe(503)
  expect((await fetch(`${base}/healthz`)).status).toBe(200)
  expect(await deliver(first)).toBe(200)
  // An orchestrator that asks a second time at once is the same wish.
  program.kill('SIGTERM')
  expect(await program.exit).toEqual({ code: 0, signal: null })
  expect(performance.now() - began).toBeLessThan(60_000)
  expect(program.output()).toContain('"msg":"stopped"')
  await expect(fetch(`${base}/healthz`)).rejects.toThrow()
  expect(await database.sql`select count(*)::int as n from mediadock.deliveries`).toEqual([{ n: 2 }])
  expect(await fs.readdir(folder)).toEqual(['keys.json'])
  for (const line of program.output().trim().split('\n')) expect(() => void JSON.parse(line)).not.toThrow()
})

it('SIGHUP reads the keys file again; a broken one keeps the old keys, and is logged without its content', async () => {
  const { program, keysFile, deliver } = await startProductionReceiver()
  const hangUp = async (text: string) => {
    await fs.writeFile(keysFile, text)
    program.kill('SIGHUP')
  }
  const brokenTimes = () => program.output().split('the file is invalid or unreadable: keeping the old keys').length - 1
  expect([await deliver(first), await deliver(second)]).toEqual([200, 401])

  await hangUp(JSON.stringify([keyNamed('first', first), keyNamed('second', second)]))
  await eventually(async () => (await deliver(second)) === 200)
  expect(await deliver(first)).toBe(200)

  const broken = [
    '[{"name":"third","signing_secret":"whsec_third',
    '[]',
    '[{"name":"third","signing_secret":"whsec_third_secret"}]',
    '',
  ]
  for (const [at, text] of broken.entries()) {
    await hangUp(text)
    await eventually(() => brokenTimes() === at + 1)
    expect([await deliver(first), await deliver(second)]).toEqual([200, 200])
  }
  await fs.rm(keysFile)
  program.kill('SIGHUP')
  await eventually(() => brokenTimes() === broken.length + 1)
  expect(await deliver(second)).toBe(200)

  await hangUp(JSON.stringify([{ name: 'first', signing_secret: second, retired: true }]))
  await eventually(async () => (await deliver(first)) === 401)
  expect(await deliver(second)).toBe(200)
  expect(program.output()).not.toMatch(/whsec_|service_live_|v1=[0-9a-f]/)
})

it('SIGHUP reads SOURCES_FILE again; a broken one keeps the old keys', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-sources-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const file = path.join(folder, 'sources.json')
  const luma = (name: string) => JSON.stringify([{ name, kind: 'luma', keys: [{ name, api_key: 'luma-hush' }] }])
  await fs.writeFile(file, luma('dreams'))
  const { base, program } = await startProductionReceiver({
    GENERATION_KEYS_FILE: '',
    GENERATION_KEYS: JSON.stringify([keyNamed('first', first)]),
    SOURCES_FILE: file,
    MEDIA_ARCHIVE: pathToFileURL(path.join(folder, 'media')).href,
  })
  for (const name of ['later', 'last']) {
    await fs.writeFile(file, luma(name))
    program.kill('SIGHUP')
    await program.says(new RegExp(`"keys":\\["first","${name}"\\],"msg":"keys read again"`))
  }
  await fs.writeFile(file, luma('Hush'))
  program.kill('SIGHUP')
  await program.says(/sources\.json[^\n]*"msg":"the file is invalid or unreadable: keeping the old keys"/)
  expect(program.output()).not.toContain('hush')

  // A source that was read again keeps media in base64 too.
  const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
  const keys = [{ name: 'pictures', api_key: 'r8_hush', signing_secret: secret }]
  await fs.writeFile(file, JSON.stringify([{ name: 'pictures', kind: 'replicate', keys }]))
  program.kill('SIGHUP')
  await program.says(/"keys":\["first","pictures"\],"msg":"keys read again"/)
  const body = Buffer.from(JSON.stringify({ id: 'a', status: 'succeeded', output: dataUri(pngOf(8)) }))
  const headers = signStandardWebhook(body, { id: 'msg_2', secret, timestampSeconds: Math.floor(Date.now() / 1000) })
  const answer = await fetch(`${base}/webhooks/pictures`, { method: 'POST', headers, body })
  expect(await answer.json()).toEqual({ status: 'accepted' })
})

it('a receiver of other sources alone needs no GENERATION_* setting and lands their deliveries', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-sources-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const file = path.join(folder, 'sources.json')
  const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
  const source = { name: 'mine', kind: 'standard-webhooks', keys: [{ name: 'own', signing_secret: secret }] }
  await fs.writeFile(file, JSON.stringify([source]))
  const { base, database, program } = await startProductionReceiver({
    GENERATION_KEYS_FILE: '',
    GENERATION_API_URL: '',
    SOURCES_FILE: file,
  })
  const error = { code: 'failed', message: 'no picture' }
  const body = Buffer.from(JSON.stringify({ request_id: randomUUID(), status: 'ERROR', error }))
  const headers = signStandardWebhook(body, { id: 'msg_1', secret, timestampSeconds: Math.floor(Date.now() / 1000) })
  const send = (to: string) => fetch(`${base}${to}`, { method: 'POST', headers, body })
  expect([(await send('/webhooks/mine')).status, (await send('/webhooks')).status]).toEqual([200, 400])
  const landed = await eventually(
    async () => (await database.sql`select status, source_name from mediadock.results`)[0],
  )
  expect(landed).toEqual({ status: 'FAILED', source_name: 'mine' })
  await fs.writeFile(file, '[]')
  program.kill('SIGHUP')
  await program.says(/contains no source[^\n]*"msg":"the file is invalid or unreadable: keeping the old keys"/)
})

it('an unknown program: exit 2', async () => {
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const program = laptop.start({}, 'everything')
  expect(await program.exit).toMatchObject({ code: 2 })
  expect(program.output()).toBe('mediadock: unknown program "everything": start receiver, provider or all\n')
  expect(await fs.readdir(laptop.folder)).toEqual([])
})
