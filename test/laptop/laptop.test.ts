import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { long } from '../chaos/length.ts'
import { isAlive, type TestProcess } from '../platform/support/processes.ts'
import { eventually } from '../support/eventually.ts'
import { openLaptop, printedRequest, type Laptop } from './support/laptop.ts'

/** The folder of a user who tries it out. */
let laptop: Laptop
let requestId: string
let first: TestProcess
/** The server that it leaves behind. */
let left: number

async function openFolder(): Promise<void> {
  laptop = await openLaptop()
  folders.push(laptop)
}
const folders: Laptop[] = []
afterAll(async () => {
  for (const { remove } of folders) await remove()
})

const keysIn = (output: string) => output.match(/service_(?:live|test)_[\w-]{32}/g) ?? []

async function resultOf(id: string) {
  const [row] = await laptop.query(
    (sql) =>
      sql`select r.*, (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media from mediadock.results r where request_id = ${id}`,
  )
  return row
}

async function interrupt(program: TestProcess, send: () => void): Promise<void> {
  const server = await laptop.serverPid()
  const began = performance.now()
  send()
  expect(await program.exit).toEqual({ code: 0, signal: null })
  expect(performance.now() - began).toBeLessThan(15_000)
  expect(isAlive(server)).toBe(false)
  expect(await laptop.processes()).toEqual([])
}

it('a command without settings and without a running start explains what to do, and starts no database', async () => {
  await openFolder()
  for (const command of [['status'], ['requests', '--json'], ['migrate']].slice(0, long ? undefined : 1)) {
    const ran = laptop.command(...command)
    expect(await ran.exit).toMatchObject({ code: 78 })
    expect(ran.output()).toMatch(
      /^mediadock: DATABASE_URL is not set, and no mediadock start runs in \S+\. Set it, or run npm start there first\.\n$/,
    )
  }
  expect(await fs.readdir(laptop.folder)).toEqual([])
})

describe('npm start without any setting', () => {
  it(
    'prints the URLs, both demo keys and a curl whose picture lands and is shown; a second start is refused; kill -9 leaves PostgreSQL running',
    { timeout: 480_000 },
    async () => {
      // A retry too is a first start.
      await openFolder()
      first = await laptop.up()
      const { PORT, INTERNAL_PORT, PROVIDER_PORT } = laptop.ports
      const consoleUrl = `http://127.0.0.1:${INTERNAL_PORT}/`
      for (const url of [`http://127.0.0.1:${PROVIDER_PORT}`, `http://localhost:${PORT}/webhooks`, consoleUrl])
        expect(first.output()).toContain(url)
      expect(first.output()).toMatch(/demo sandbox key +service_test_/)
      expect(first.output()).toMatch(/demo live key +service_live_/)
      // The first start logs no warnings or errors about missing data.
      expect(first.output()).not.toMatch(/"level":"(?:warn|error)"|"stack"/)

      const status = laptop.command('status')
      expect(await status.exit).toMatchObject({ code: 0 })
      expect(status.output()).toMatch(
        /^mediadock: DATABASE_URL is not set\. Using the mediadock start in this folder: 127\.0\.0\.1:\d+\/mediadock$/m,
      )
      expect(status.stdout()).toMatch(/^Database 127\.0\.0\.1:\d+\/mediadock\n\d+ arrivals? /m)

      const { url, headers, body } = printedRequest(first.output())
      const answer = await fetch(url, { method: 'POST', headers, body })
      expect(answer.status).toBe(200)
      const submitted: { request_id: string } = JSON.parse(await answer.text())
      requestId = submitted.request_id
      const landed = await eventually(async () => {
        const row = await resultOf(requestId)
        return row?.['status'] === 'COMPLETED' && row['media'] > 0 ? row : undefined
        // Engines have the lowest priority.
      }, 300_000)
      expect(landed).toMatchObject({ source: 'webhook', key_name: 'demo-live', sandbox: false, media: 1 })
      const [media] = await laptop.query((sql) => sql`select * from mediadock.media where request_id = ${requestId}`)
      expect(media).toMatchObject({ kind: 'image', position: 0 })
      const picture = new Uint8Array(await (await fetch(media?.['url'])).arrayBuffer())
      expect(Buffer.from(picture.subarray(0, 8)).toString('latin1')).toBe('\x89PNG\r\n\x1a\n')
      const page = await (await fetch(consoleUrl)).text()
      expect(page).toContain(requestId)
      expect(page).toContain(`src="${media?.['url']}"`)

      left = await laptop.serverPid()
      const second = laptop.start()
      expect(await second.exit).toMatchObject({ code: 1 })
      expect(second.output()).toMatch(/^mediadock: \S+\.data is in use by a running mediadock: stop it first$/m)
      expect(second.output().trim().split('\n')).toHaveLength(1)
      expect(await laptop.serverPid()).toBe(left)
      expect((await fetch(`${consoleUrl}readyz`)).status).toBe(200)
      expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED' })

      first.kill('SIGKILL')
      await first.exit
      expect(isAlive(left)).toBe(true)
    },
  )

  it(
    'recovers from that with its data and keys; Ctrl-C stops all of it, and the log has only JSON lines and no secret',
    { timeout: 120_000 },
    async () => {
      const second = await laptop.up()
      await eventually(() => !isAlive(left))
      expect(keysIn(second.output())).toEqual(keysIn(first.output()))
      expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', media: 1 })
      // As npm does it: the terminal has sent Ctrl-C to both already, and npm passes it on.
      await interrupt(second, () => {
        second.kill('SIGINT')
        setTimeout(() => second.kill('SIGINT'), 20)
      })
      expect(second.output()).toContain('"msg":"stopped"')
      await expectQuiet(first)
      await expectQuiet(second)
    },
  )
})

/** A program that reads the log gets only JSON lines. They contain no key, and no output contains a secret. */
async function expectQuiet(program: TestProcess): Promise<void> {
  const isLogged = (line: string) => line.startsWith('{')
  expect(
    program
      .stdout()
      .trim()
      .split('\n')
      .filter((line) => !isLogged(line)),
  ).toEqual([])
  const logged = program.output().split('\n').filter(isLogged).join('\n')
  const secrets: Record<string, { signing_secret?: string; api_key?: string }> = JSON.parse(
    await fs.readFile(path.join(laptop.dataDir, 'demo-keys.json'), 'utf8'),
  )
  for (const { signing_secret: secret, api_key: key } of [secrets['live'], secrets['sandbox']].flatMap(
    (one) => one ?? [],
  )) {
    expect(program.output()).not.toContain(secret)
    expect(logged).not.toContain(key)
  }
}
