import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { pino } from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { readCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { createKey, grantCredits, openProvider } from '../../../src/provider/operating/commands.ts'
import { startProvider } from '../../../src/provider/program.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../engines/engine-run.ts'
import { startEngineStand } from '../engines/engine-stand.ts'
import { picture, sendJson } from '../engines/images-service.ts'
import { call, testSettings } from '../support/running-provider.ts'

type Written = { price: number; url: string; tokenFile: string; slug?: string }

const model = ({ price, url, tokenFile, slug = 'dunes' }: Written) => `models:
  - slug: ${slug}
    type: image
    name: Dunes
    capabilities: [text-to-image]
    environments: [live]
    engine: http
    engine_settings: { url: '${url}', poll_seconds: 0.05, token_file: '${tokenFile}' }
    input_schema: { prompt: { type: string, max_length: 100 } }
    pricing: { credits_base: ${price} }
`

/** An engine whose jobs end when the test says so. */
async function engine() {
  const bytes = await picture('png')
  let isDone = false
  const stand = await startEngineStand(({ response }) =>
    sendJson(
      response,
      isDone ? { status: 'done', outputs: [{ base64: bytes.toString('base64') }] } : { status: 'running' },
    ),
  )
  return { ...stand, finish: () => void (isDone = true) }
}

it('a reloaded catalog applies to later calls, and a broken one changes nothing', { timeout: 180_000 }, async () => {
  const [first, second] = [await engine(), await engine()]
  const database = await withTestDatabase()
  const folder = await temporaryFolder()
  const [file, tokenFile, token] = [
    path.join(folder, 'models.yaml'),
    path.join(folder, 'token'),
    randomBytes(16).toString('hex'),
  ]
  await fs.writeFile(tokenFile, `${token}\n`)
  await fs.writeFile(file, model({ price: 2, url: first.url, tokenFile }))
  const { catalog } = readCatalog(file)
  const settings = await testSettings(database.url, {
    catalogFile: file,
    catalog: catalog ?? expect.fail(),
    secretKey: randomBytes(32),
  })
  const lines: string[] = []
  let reread = () => {}
  const program = await startProvider({
    settings,
    logger: pino({}, { write: (line: string) => void lines.push(line) }),
    onCatalogReload: (given) => (reread = given),
  })
  onTestFinished(() => program.stop(1000))
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: settings.secretKey })
  onTestFinished(close)
  const { api_key: key } = await createKey(deps, { account: 'a', name: 'k', environment: 'live' })
  await grantCredits(deps, { account: 'a', credits: 100 })
  const url = program.urls['api'] ?? ''
  const submit = async () =>
    (await call(url, 'POST', '/v1/models/dunes', { key, body: { input: { prompt: 'x' } } })).body
  const result = (id: string) =>
    eventually(async () => {
      const answer = await call(url, 'GET', `/v1/requests/${id}`, { key })
      return answer.status === 200 && answer.body
    }, 120_000)

  const old = await submit()
  expect(old).toMatchObject({ cost: 2 })
  await eventually(async () => first.started.length === 1, 120_000)

  await fs.writeFile(file, model({ price: 9, url: second.url, tokenFile }))
  reread()
  const young = await submit()
  expect(young).toMatchObject({ cost: 9 })

  await fs.writeFile(file, model({ price: -1, url: second.url, tokenFile }))
  reread()
  expect(lines.join('')).toContain(`${file} models.dunes.pricing.credits_base: `)
  expect((await call(url, 'GET', '/v1/models', { key })).body.data).toMatchObject([
    { slug: 'dunes', pricing: { credits: 9 } },
  ])

  // Even when its model is gone, a request ends with its own engine and price.
  await fs.writeFile(file, model({ price: 9, url: second.url, tokenFile, slug: 'others' }))
  reread()
  expect(await submit()).toMatchObject({ error: { code: 'model_not_found' } })
  first.finish()
  second.finish()
  expect(await result(old.request_id)).toMatchObject({ status: 'COMPLETED', cost: 2 })
  expect(await result(young.request_id)).toMatchObject({ status: 'COMPLETED', cost: 9 })
  expect([first.started, second.started].map((jobs) => jobs.map((job) => job.requestId))).toEqual([
    [old.request_id],
    [young.request_id],
  ])
  expect((await call(url, 'GET', '/v1/account', { key })).body.balance).toEqual({ credits: 89 })

  expect(new Set([...first.calls, ...second.calls].map(({ token: sent }) => sent))).toEqual(
    new Set([`Bearer ${token}`]),
  )
  const rows = await database.sql`select row_to_json(r)::text as row from provider.requests r`
  expect(rows.map(({ row }) => row).join('')).toContain(tokenFile)
  expect(rows.map(({ row }) => row).join('') + lines.join('')).not.toContain(token)
})
