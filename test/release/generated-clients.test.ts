import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { openLaptop } from '../laptop/support/laptop.ts'
import { childEnv } from '../support/child-env.ts'

const root = path.resolve(import.meta.dirname, '../..')
const run = promisify(execFile)

/** Submits through the receiver and to the provider, and reads both results through clients of the documents. */
const program = `import { randomUUID } from 'node:crypto'
import createClient from 'openapi-fetch'
import type { paths as Provider } from './provider.d.ts'
import type { paths as Receiver } from './receiver.d.ts'

const [receiverUrl = '', providerUrl = '', apiKey = '', webhook_url = ''] = process.argv.slice(2)
const receiver = createClient<Receiver>({ baseUrl: receiverUrl })
const provider = createClient<Provider>({ baseUrl: providerUrl, headers: { Authorization: \`Bearer \${apiKey}\` } })
const input = { prompt: 'a boat' }

const idempotency_key = randomUUID()
const submit = await receiver.POST('/api/generations', {
  body: { model: 'aurora-image', input, idempotency_key, metadata: { order: 7 } },
})
if (submit.error) throw new Error(submit.error.error.code)
// @ts-expect-error: the types are known, and the answer has no such member
if (submit.data.nothing !== undefined) throw new Error('the answer has another shape')
const { data: generation } = await receiver.GET('/api/generations/{idempotency_key}', {
  params: { path: { idempotency_key }, query: { wait: 30 } },
})
console.log(generation?.result?.status, generation?.result?.metadata, generation?.media.length)

const direct = await provider.POST('/v1/models/{model}', {
  params: { path: { model: 'aurora-image' } },
  body: { input, webhook_url },
})
if (direct.error) throw new Error(direct.error.error.code)
const { request_id } = direct.data
const track = await receiver.POST('/api/requests', { body: { request_id, key_name: 'demo-sandbox' } })
if (track.error) throw new Error(track.error.error.code)
const { data: row } = await receiver.GET('/api/results/{request_id}', {
  params: { path: { request_id }, query: { wait: 30 } },
})
const { data: result } = await provider.GET('/v1/requests/{request_id}', { params: { path: { request_id } } })
const output = result?.status === 'COMPLETED' ? result.output : undefined
console.log(row?.status, output && 'images' in output && output.images.length)
`

it(
  'clients generated from both OpenAPI documents compile strictly and run the loop',
  { timeout: 120_000 },
  async () => {
    const laptop = await openLaptop()
    onTestFinished(() => laptop.remove())
    const { folder, ports } = laptop
    const generator = path.join(root, 'laptop/node_modules/openapi-typescript/bin/cli.js')
    const documents = { receiver: 'openapi/receiver.json', provider: 'src/provider/api/openapi.json' }
    for (const [name, file] of Object.entries(documents))
      await run(process.execPath, [generator, path.join(root, file), '-o', `${folder}/${name}.d.ts`])
    await fs.symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'))
    await fs.writeFile(path.join(folder, 'package.json'), '{"type":"module"}')
    await fs.writeFile(path.join(folder, 'loop.ts'), program)
    const compilerOptions = {
      module: 'nodenext',
      target: 'es2024',
      types: ['node'],
      noEmit: true,
      allowImportingTsExtensions: true,
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
    }
    await fs.writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['loop.ts'] }))
    const tsc = path.join(root, 'node_modules/typescript/bin/tsc')
    const compiled = await run(process.execPath, [tsc, '-p', folder]).catch((error: { stdout: string }) => error)
    expect(compiled.stdout).toBe('')

    const started = await laptop.up()
    const [key = ''] = started.output().match(/service_test_[\w-]{32}/) ?? []
    const urls = [`http://127.0.0.1:${ports.INTERNAL_PORT}`, `http://127.0.0.1:${ports.PROVIDER_PORT}`]
    const webhookUrl = `http://127.0.0.1:${ports.PORT}/webhooks`
    const { stdout } = await run(process.execPath, ['loop.ts', ...urls, key, webhookUrl], {
      cwd: folder,
      env: childEnv,
    })
    expect(stdout).toBe('COMPLETED { order: 7 } 1\nCOMPLETED 1\n')
  },
)
