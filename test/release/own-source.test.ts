import { execFile } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { openLaptop } from '../laptop/support/laptop.ts'
import { startProcess } from '../platform/support/processes.ts'
import { childEnv } from '../support/child-env.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/provider-stand.ts'
import { liveKey } from '../support/receiver.ts'

const root = path.resolve(import.meta.dirname, '../..')
const kindsFile = 'src/receiver/sources/kinds.ts'
const secret = 'a-secret-of-acme-with-enough-bytes'

/** A copy of the code, changed as the page says and in nothing else. */
async function changedAsThePageSays(): Promise<string> {
  const page = await fs.readFile(path.join(root, 'docs/contributing/own-source.md'), 'utf8')
  const [code = '', line = '', entry = ''] = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, text]) => text ?? '')
  expect(code.split('\n').length).toBeLessThanOrEqual(81)
  const copy = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-own-source-'))
  onTestFinished(() => fs.rm(copy, { recursive: true, force: true }))
  for (const name of ['src', 'package.json', 'tsconfig.json', 'drizzle'])
    await fs.cp(path.join(root, name), path.join(copy, name), { recursive: true })
  await fs.symlink(path.join(root, 'node_modules'), path.join(copy, 'node_modules'))
  await fs.writeFile(path.join(copy, 'src/receiver/sources/acme.ts'), code)
  const kinds = await fs.readFile(path.join(copy, kindsFile), 'utf8')
  await fs.writeFile(path.join(copy, kindsFile), `${line}${kinds.replace('= {\n', `= {\n${entry}`)}`)
  return copy
}

/** Acme: it keeps the callback of a job and answers polls. */
async function startAcme() {
  const jobs = new Map<string, string>()
  const server = http.createServer((req, res) => {
    let text = ''
    req.on('data', (chunk) => (text += chunk))
    req.on('end', () => {
      if (req.headers.authorization !== 'Bearer acme-key') return json(res, 401, {})
      if (req.method !== 'POST') return json(res, 200, doneJob(req.url?.split('/').at(-1) ?? ''))
      const id = `job_${jobs.size + 1}`
      jobs.set(id, JSON.parse(text).callback)
      json(res, 201, { id, state: 'waiting' })
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, jobs }
}

const doneJob = (id: string) => ({ id, state: 'done', model: 'acme-1', files: [{ url: 'https://acme.test/1.png' }] })

function signed(body: string, key: string): Record<string, string> {
  const time = String(Math.floor(Date.now() / 1000))
  const signature = createHmac('sha256', key).update(`${time}.${body}`).digest('hex')
  return { 'x-acme-delivery': 'd1', 'x-acme-time': time, 'x-acme-signature': signature }
}

it('a source written from the page alone compiles, verifies, submits and lands', { timeout: 180_000 }, async () => {
  const copy = await changedAsThePageSays()
  await promisify(execFile)(
    process.execPath,
    [path.join(root, 'node_modules/typescript/bin/tsc'), '--noEmit', '-p', await projectOf(copy)],
    { cwd: copy },
  ).catch((error: { stdout?: string }) => expect.fail(error.stdout))

  const acme = await startAcme()
  const database = await withTestDatabase()
  const { ports, remove } = await openLaptop()
  onTestFinished(remove)
  const keys = [{ name: 'acme', api_key: 'acme-key', signing_secret: secret }]
  const file = path.join(copy, 'sources.json')
  await fs.writeFile(file, JSON.stringify([{ name: 'pictures', kind: 'acme', keys, api_url: acme.url }]))
  const receiver = startProcess(process.execPath, [path.join(copy, 'src/main.ts'), 'receiver'], {
    cwd: copy,
    env: {
      ...childEnv,
      ...Object.fromEntries(Object.entries(ports).map(([name, port]) => [name, String(port)])),
      DATABASE_URL: database.url,
      GENERATION_KEYS: JSON.stringify([liveKey]),
      SOURCES_FILE: file,
    },
  })
  await receiver.says(/"msg":"started"/, 60_000)

  const submitted = await fetch(`http://127.0.0.1:${ports.INTERNAL_PORT}/api/generations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme-1', input: {}, key_name: 'acme' }),
  })
  expect(await submitted.json()).toMatchObject({ state: 'submitted' })
  const [[id, callback] = expect.fail()] = acme.jobs
  const body = JSON.stringify(doneJob(id))
  const post = async (headers: Record<string, string>) =>
    (await fetch(callback, { method: 'POST', headers, body })).status
  expect(await post(signed(body, `not ${secret}`))).toBe(401)
  expect(await post(signed(body, secret))).toBe(200)
  const landed = await eventually(async () => {
    const [row] = await database.sql`select source_name, external_id, status from mediadock.results`
    return row?.['status'] === 'COMPLETED' && row
  })
  expect(landed).toMatchObject({ source_name: 'pictures', external_id: id })
})

/** A project of the two files that the page changes: the other files have their own check. */
async function projectOf(copy: string): Promise<string> {
  const file = path.join(copy, 'tsconfig.own.json')
  const settings = { extends: './tsconfig.json', include: [], files: [kindsFile] }
  await fs.writeFile(file, JSON.stringify(settings))
  return file
}
