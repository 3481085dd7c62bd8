import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { typesOf } from '../../src/commands/types.ts'
import { mediadockHere } from '../commands/mediadock.ts'
import { withTestDatabase } from '../support/database.ts'
import { json, startProviderStand } from '../support/provider-stand.ts'
import { liveKey } from '../support/receiver.ts'

const tsc = path.resolve(import.meta.dirname, '../../node_modules/typescript/bin/tsc')
const model = {
  slug: 'vela',
  type: 'video' as const,
  name: 'Vela',
  capabilities: ['text-to-video'],
  input_schema: {
    prompt: { type: 'string' as const, required: true, max_length: 30_000, description: 'What to show. */ evil()' },
    duration: { type: 'number' as const, enum: [4, 8], default: 4 },
    image_urls: { type: 'array' as const, items: { type: 'string' as const }, max_items: 30 },
    generate_audio: { type: 'boolean' as const },
  },
  pricing: { credits_base: 12 },
}

it('prints types that accept exactly the inputs that the model accepts', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-types-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  const inputs = {
    accepted: `{ prompt: 'x', duration: 8, image_urls: ['a'], generate_audio: true }`,
    promptless: `{ duration: 8 }`,
    long: `{ prompt: 'x', duration: 5 }`,
    unknown: `{ prompt: 'x', other: 1 }`,
  }
  for (const [name, input] of Object.entries(inputs))
    await fs.writeFile(
      path.join(folder, `${name}.ts`),
      `${typesOf([model])}\nexport const input: ModelInputs['vela'] = ${input}\n`,
    )
  const files = Object.keys(inputs).map((name) => `${name}.ts`)
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '--strict', '--noEmit', ...files], {
    cwd: folder,
  }).catch((error: { stdout: string }) => error)
  const refused = [...stdout.matchAll(/^(\w+)\.ts\(.*error TS/gm)].map(([, name]) => name)
  expect(new Set(refused)).toEqual(new Set(['long', 'promptless', 'unknown']))
})

it('reads the current catalog with a configured key', async () => {
  const { url } = await withTestDatabase()
  const stand = await startProviderStand()
  onTestFinished(stand.close)
  stand.answer((_id, req, res) =>
    json(res, 200, req.url === '/v1/models' ? { data: [{ ...model, pricing: { credits: 12 } }] } : model),
  )
  const env = { DATABASE_URL: url, GENERATION_API_URL: stand.url, GENERATION_KEYS: JSON.stringify([liveKey]) }
  const { code, stdout } = await mediadockHere(env, 'types', '--key-name', 'live')
  expect({ code, stdout }).toEqual({ code: 0, stdout: typesOf([model]) })
  expect(stand.calls.map(({ path }) => path)).toEqual(['/v1/models', '/v1/models/vela'])
})
