import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import { pino } from 'pino'
import { afterAll, expect, it, onTestFinished, vi } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import type { EngineChoice } from '../../../src/provider/domain/engine-choice.ts'
import { badEndingOf, type Faults } from '../../../src/provider/domain/faults.ts'
import { createEngineHost } from '../../../src/provider/engines/engine-host.ts'
import { createRemoteEngine } from '../../../src/provider/engines/registry.ts'
import { cancelRequest, createKey, grantCredits, openProvider } from '../../../src/provider/operating/commands.ts'
import { type JobDeps, runJob } from '../../../src/provider/queue/job.ts'
import { claimRequests } from '../../../src/provider/queue/requests.ts'
import { createReferences } from '../../../src/provider/references/references.ts'
import { type Submission, writeSubmission } from '../../../src/provider/submit/submit-statement.ts'
import { withTestDatabase } from '../../support/database.ts'
import { temporaryFolder } from '../engines/engine-run.ts'
import { startEngineStand } from '../engines/engine-stand.ts'
import { type Answer, picture, sendJson, startImagesService } from '../engines/images-service.ts'
import { moment } from '../support/time.ts'

const start = Date.parse('2026-01-01T00:00:00Z')
/** Beyond any pause before another attempt. */
const pauseMs = 60_000

/** One engine process for all tests. */
const engines = createEngineHost({ logger: createLogger('silent') })
afterAll(engines.close)

type Changes = Partial<Pick<Submission, 'environment' | 'faults' | 'webhookUrl' | 'engine'>> & {
  random?: () => number
  engines?: JobDeps['engines']
}

/** One request whose pictures a service makes; `run` is what one attempt of a worker does. */
async function requestOf(
  answer: Answer,
  { environment = 'live', faults = null, webhookUrl, random = () => 0.5, engines: own, engine: given }: Changes = {},
) {
  const database = await withTestDatabase()
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32) })
  onTestFinished(close)
  const service = await startImagesService(answer)
  const engine: EngineChoice = given ?? {
    name: 'openai-images',
    type: 'image',
    settings: { url: service.url, model: 'm' },
  }
  const lines: string[] = []
  const logger = pino({}, { write: (line: string) => void lines.push(line) })
  const keyId = (await createKey(deps, { account: 'a', name: 'k', environment })).id
  await grantCredits(deps, { account: 'a', credits: 10 })
  const id = randomUUID()
  const common = { requestId: id, accountId: 'a', keyId, environment, model: 'aurora-image', cost: '4' }
  const input = { prompt: 'a bay', num_images: 1, aspect_ratio: '1:1', resolution: '1k', output_format: 'png' }
  const rest = { webhookUrl, faults, idempotency: undefined, completed: undefined }
  await writeSubmission(deps.db, { ...common, input, engine, ...rest }, moment(new Date(start)))

  const media = { mediaDir: await temporaryFolder(), mediaUrl: 'http://127.0.0.1/media' }
  const references = createReferences({
    ...media,
    baseUrl: 'http://127.0.0.1',
    referenceAllow: [],
    resolve: async () => [],
  })
  onTestFinished(references.close)
  const job = {
    db: deps.db,
    engines: own ?? engines,
    references,
    logger,
    leaseSeconds: 10,
    random,
    ...media,
  }
  let now = start
  const run = async (cut = new AbortController().signal) => {
    now += pauseMs
    const time = timeOf(() => new Date(now))
    const claim = { environment, limit: 1, leaseSeconds: 10, now: time() }
    for (const claimed of await claimRequests(deps.db, claim)) await runJob({ ...job, time }, claimed, cut)
    const [row] = await database.sql`select status, attempts, error_message from provider.requests where id = ${id}`
    const [account] = await database.sql`select available from provider.accounts`
    return { ...row, balance: Number(account?.['available']) }
  }
  const cancel = () => cancelRequest(deps, id)
  return { run, cancel, db: deps.db, log: () => lines.join(''), files: () => fs.readdir(job.mediaDir) }
}

/** One request of a sandbox key that has these faults. */
const rehearsalOf = (faults: Faults, drawn: number) =>
  requestOf(() => expect.fail('no service is asked'), { environment: 'sandbox', faults, random: () => drawn })

it('retries when the service is busy, and records why', async () => {
  let calls = 0
  const { run, log, files } = await requestOf(async ({ response }) => {
    calls += 1
    if (calls === 1) return sendJson(response, { error: 'come back, says the whisperer' }, 503)
    sendJson(response, { data: [{ b64_json: (await picture('png')).toString('base64') }] })
  })
  expect(await run()).toEqual({ status: 'IN_PROGRESS', attempts: 1, error_message: null, balance: 6 })
  expect(log()).toContain('the image service answered 503')
  expect(log()).toContain('generation will be retried')
  expect(await run()).toEqual({ status: 'COMPLETED', attempts: 2, error_message: null, balance: 6 })
  expect(await files()).toHaveLength(1)
})

it('fails after three attempts at a busy service, with a message for the client and a refund', async () => {
  const { run } = await requestOf(({ response }) => sendJson(response, {}, 429))
  expect(await run()).toMatchObject({ status: 'IN_PROGRESS', attempts: 1 })
  expect(await run()).toMatchObject({ status: 'IN_PROGRESS', attempts: 2 })
  expect(await run()).toEqual({
    status: 'FAILED',
    attempts: 3,
    error_message: 'the image service is busy or failing',
    balance: 10,
  })
})

it('ends without its webhook if Postgres refuses to store the webhook', async () => {
  const answer: Answer = async ({ response }) =>
    sendJson(response, { data: [{ b64_json: (await picture('png')).toString('base64') }] })
  // As it may have been taken by an older release: longer than an entry of an index.
  const host = Array.from({ length: 200 }, () => randomUUID().replaceAll('-', '')).join('.')
  const { run, log } = await requestOf(answer, { webhookUrl: `https://${host}.example/` })
  expect(await run()).toEqual({ status: 'COMPLETED', attempts: 1, error_message: null, balance: 6 })
  expect(log()).toContain('Postgres refused to store the end of a generation')
})

it('fails with a refund if Postgres refuses to store the result', async () => {
  // A team's engine may send NUL, which JSON allows and Postgres does not.
  const engines = { run: async () => ({ images: [{ url: 'https://media.test/\0.png', width: 1, height: 1 }] }) }
  const { run } = await requestOf(() => expect.fail('no service is asked'), { engines })
  expect(await run()).toEqual({
    status: 'FAILED',
    attempts: 1,
    error_message: 'the generation could not be completed',
    balance: 10,
  })
})

it('fails at once if a retry cannot succeed', async () => {
  const { run, log } = await requestOf(({ response }) =>
    sendJson(response, { error: 'no bays, says the whisperer' }, 400),
  )
  expect(await run()).toEqual({
    status: 'FAILED',
    attempts: 1,
    error_message: 'the image service refused this input',
    balance: 10,
  })
  expect(log()).toContain('says the whisperer')
})

it('keeps the output if the connection breaks while the last progress is written', async () => {
  const engines: JobDeps['engines'] = {
    run: async (_engine, _job, report) => {
      // The first is written at once, the second when the generation has ended.
      await report(10, 'begins')
      await report(90, 'ends')
      vi.spyOn(db, 'execute').mockRejectedValueOnce(
        Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' }),
      )
      return { images: [{ url: 'http://127.0.0.1/media/1.png', width: 1, height: 1 }] }
    },
  }
  const { run, db, log } = await requestOf(() => expect.fail('no service is asked'), { engines })
  expect(await run()).toEqual({ status: 'COMPLETED', attempts: 1, error_message: null, balance: 6 })
  expect(log()).toContain('CONNECTION_CLOSED')
})

it('does not count an injected delay towards the 15 minutes of a generation', async () => {
  const timeout = AbortSignal.timeout.bind(AbortSignal)
  const timeouts = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => timeout(ms - 15 * 60_000 + 300))
  onTestFinished(() => timeouts.mockRestore())
  const { run } = await rehearsalOf({ slow_seconds: 0.4 }, 0.5)
  expect(await run()).toMatchObject({ status: 'COMPLETED' })
})

it('half failed and half canceled cover all requests', () => {
  const endings = (failed: number, canceled: number) =>
    [0, 0.49, 0.5, 0.99].map((drawn) => badEndingOf({ failed, canceled }, () => drawn))
  expect(endings(0.5, 0.5)).toEqual(['failed', 'failed', 'canceled', 'canceled'])
  expect(endings(0, 0.5)).toEqual(['canceled', 'canceled', undefined, undefined])
  expect(endings(1, 1)).toEqual(['failed', 'failed', 'failed', 'failed'])
})

/** One request whose picture an engine on another server makes, in this process; it is done once `finish` is called. */
async function remoteRequest() {
  const bytes = await picture('png')
  const looked = Promise.withResolvers<void>()
  let isDone = false
  const stand = await startEngineStand(({ response }) => {
    looked.resolve()
    sendJson(
      response,
      isDone ? { status: 'done', outputs: [{ base64: bytes.toString('base64') }] } : { status: 'running', progress: 5 },
    )
  })
  const engine: EngineChoice = { name: 'http', type: 'image', settings: { url: stand.url, poll_seconds: 0.05 } }
  const engines: JobDeps['engines'] = {
    run: (choice, job, report, signal) => (createRemoteEngine(choice, undefined) ?? expect.fail())(job, report, signal),
  }
  const request = await requestOf(() => expect.fail('no service is asked'), { engine, engines })
  return { ...request, stand, looked: looked.promise, finish: () => void (isDone = true) }
}

it('continues a remote job after a stop of the process', async () => {
  const { run, stand, looked, finish } = await remoteRequest()
  const cut = new AbortController()
  const stopped = run(cut.signal)
  await looked
  cut.abort(new Error('the process is stopping'))
  expect(await stopped).toMatchObject({ status: 'IN_PROGRESS', attempts: 0 })
  finish()
  expect(await run()).toMatchObject({ status: 'COMPLETED', balance: 6 })
  expect([stand.started.length, stand.of('POST').length, stand.of('DELETE').length]).toEqual([1, 1, 0])
})

it("takes over a remote engine's job from a worker that lost its lease, without starting another", async () => {
  const { run, stand, looked, finish, log } = await remoteRequest()
  const lost = run()
  await looked
  const taken = run()
  await lost
  expect(log()).toContain('generation canceled or taken over')
  finish()
  expect(await taken).toMatchObject({ status: 'COMPLETED', attempts: 2, balance: 6 })
  expect([stand.started.length, stand.of('POST').length, stand.of('DELETE').length]).toEqual([1, 1, 0])
})

it('cancels the job of an engine on another server with its request', async () => {
  const { run, cancel, stand, looked } = await remoteRequest()
  const canceled = run()
  await looked
  await cancel()
  expect(await canceled).toMatchObject({ status: 'CANCELED', balance: 10 })
  expect(stand.of('DELETE').map(({ path }) => path)).toEqual(['/jobs/1'])
})
