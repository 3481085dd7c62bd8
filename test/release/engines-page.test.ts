import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import sharp from 'sharp'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { readCatalog } from '../../src/provider/catalog/catalog-file.ts'
import { httpEngineSchema } from '../../src/provider/engines/engine-settings.ts'
import { createHttpEngine } from '../../src/provider/engines/http-engine.ts'
import { startProcess } from '../platform/support/processes.ts'
import { fileOf, imagesOf, mediaUrl, temporaryFolder } from '../provider/engines/engine-run.ts'
import { freePort } from '../provider/support/free-port.ts'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { eventually } from '../support/eventually.ts'

const root = path.resolve(import.meta.dirname, '../..')
const hasPython = await promisify(execFile)('python3', ['--version']).then(
  () => true,
  () => false,
)
const token = randomBytes(16).toString('hex')

/** The first block of a language on the page. */
async function blockOf(language: string): Promise<string> {
  const page = await fs.readFile(path.join(root, 'docs/engines.md'), 'utf8')
  return new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(page)?.[1] ?? expect.fail(`no ${language} on the page`)
}

/** The program of the page, as it is; answers the port. */
async function startExample(): Promise<number> {
  const program = path.join(await temporaryFolder(), 'engine.py')
  await fs.writeFile(program, await blockOf('python'))
  const port = await freePort()
  const env = { PATH: process.env['PATH'] ?? '', STUDIO_TOKEN: token }
  startProcess('python3', [program, String(port)], { cwd: path.dirname(program), env })
  await eventually(
    () =>
      fetch(`http://127.0.0.1:${port}/jobs/none`).then(
        ({ status }) => status === 401,
        () => false,
      ),
    30_000,
  )
  return port
}

describe.skipIf(!hasPython)('docs/engines.md', () => {
  it('has an engine of at most 60 lines that keeps reference bytes unchanged and creates one job per request_id', async () => {
    const lines = (await blockOf('python')).trimEnd().split('\n')
    expect(lines.length).toBeLessThanOrEqual(60)
    const url = `http://127.0.0.1:${await startExample()}/jobs`
    const engine = createHttpEngine(httpEngineSchema.parse({ url, api_key: token, poll_seconds: 0.05 }), 'image')
    const mediaDir = await temporaryFolder()
    // Every byte, and what a parser of text would change.
    const bytes = Buffer.concat([Buffer.from('\r\n--x\r\n\n\r'), randomBytes(100_000), Buffer.from('\r\n')])
    await fs.writeFile(`${mediaDir}/reference`, bytes)
    const job = {
      requestId: '0d0c5c3e-2f1b-4c3a-9d2e-000000000001',
      model: 'studio-dunes',
      input: { prompt: 'dunes', size: 'small' },
      mediaDir,
      mediaUrl,
      references: [
        {
          field: 'image_url',
          position: 0,
          kind: 'image' as const,
          path: `${mediaDir}/reference`,
          contentType: 'image/png',
          sha256: '',
        },
      ],
    }
    const run = () => engine(job, async () => {}, new AbortController().signal)
    const [output, again] = await Promise.all([run(), run()])
    expect(again).toEqual(output)
    const [image] = imagesOf(output)
    const { data } = await sharp(fileOf(mediaDir, image?.url ?? ''))
      .raw()
      .toBuffer({ resolveWithObject: true })
    const seed = createHash('sha256').update('dunes').update(bytes).digest()
    // The last pixel, where the colour is brightest.
    expect([...data.subarray(-3)]).toEqual([...seed.subarray(0, 3)].map((channel) => Math.floor((channel * 510) / 512)))
  })

  it('adds a model by its file, which is priced, made by its program and settled', { timeout: 180_000 }, async () => {
    const port = await startExample()
    vi.stubEnv('STUDIO_TOKEN', token)
    onTestFinished(() => void vi.unstubAllEnvs())
    const file = path.join(await temporaryFolder(), 'models.yaml')
    const builtIn = await fs.readFile(path.join(root, 'src/provider/catalog/catalog.yaml'), 'utf8')
    await fs.writeFile(file, builtIn + (await blockOf('yaml')).replace('9000', String(port)))
    const { catalog, problems } = readCatalog(file)
    expect(problems).toEqual([])
    const provider = await startTestProvider({ catalog: catalog ?? expect.fail(), catalogFile: file })
    onTestFinished(provider.stop)
    const { api_key: key, account } = await provider.createKey({ environment: 'live' })
    await provider.grant(account, 20)

    const body = { input: { prompt: 'dunes at dawn', size: 'large' } }
    expect((await provider.call('POST', '/v1/models/studio-dunes/estimate', { key, body })).body).toEqual({
      credits: 5,
    })
    const { request_id: id } = (await provider.call('POST', '/v1/models/studio-dunes', { key, body })).body
    const result = await eventually(async () => {
      const answer = await provider.call('GET', `/v1/requests/${id}`, { key })
      return answer.status === 200 && answer.body
    }, 120_000)
    expect(result).toMatchObject({ status: 'COMPLETED', cost: 5, output: { images: [{ width: 512, height: 512 }] } })
    const picture = await fetch(result.output.images[0].url)
    expect([picture.status, picture.headers.get('content-type')]).toEqual([200, 'image/png'])
    const [row] = await provider.database.sql`select progress, logs from provider.requests where id = ${id}`
    expect(row).toEqual({ progress: 100, logs: ['layer 1 of 4', 'layer 2 of 4', 'layer 3 of 4', 'layer 4 of 4'] })
    expect((await provider.call('GET', '/v1/account', { key })).body.balance).toEqual({ credits: 15 })
  })
})
