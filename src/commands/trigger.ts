import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { ConfigError } from '../config/config-error.ts'
import { isProduction } from '../config/config.ts'
import { readLocalSecrets } from '../laptop/local.ts'
import { type ProcessEnvironment, settingsReader } from '../platform/settings.ts'
import { describeFailure } from '../receiver/fetching/source-client.ts'
import { readKeys } from '../receiver/settings.ts'
import { sign } from '../wire/signature.ts'
import { printable, UsageError, type Command } from './usage.ts'

const deadlineMs = 15_000

type Sample = { body: object; secret?: 'wrong'; ageSeconds?: number; times?: number; expected: number }

const image = 'https://media.example/sample.png'
const ok = (output: object, model: string) => ({ status: 'OK', payload: { model, output, cost: 4 } })

/** The requests of each kind. Bodies follow the spec's Events. */
const samples: Record<string, Sample> = {
  ok: { body: ok({ images: [{ url: image }] }, 'sample-image'), expected: 200 },
  error: { body: { status: 'ERROR', error: { code: 'GENERATION_FAILED', message: 'sample failure' } }, expected: 200 },
  // A webhook contains only the first picture of several. The receiver fetches the rest.
  'multi-image': { body: ok({ images: [{ url: image }] }, 'sample-image-set'), expected: 200 },
  video: { body: ok({ video: { url: 'https://media.example/sample.mp4' } }, 'sample-video'), expected: 200 },
  audio: { body: ok({ audio: { url: 'https://media.example/sample.mp3' } }, 'sample-audio'), expected: 200 },
  duplicate: {
    body: ok({ audio: { url: 'https://media.example/sample.mp3' } }, 'sample-audio'),
    times: 2,
    expected: 200,
  },
  'bad-signature': { body: ok({ images: [{ url: image }] }, 'sample-image'), secret: 'wrong', expected: 401 },
  stale: { body: ok({ images: [{ url: image }] }, 'sample-image'), ageSeconds: 301, expected: 401 },
}

const options = {
  url: { type: 'string' },
  'secret-file': { type: 'string' },
  secret: { type: 'string' },
  'request-id': { type: 'string' },
} as const

export const triggerCommand: Command = {
  help: `
mediadock trigger <${Object.keys(samples).join('|')}>
                  [--url URL] [--secret-file FILE | --secret SECRET] [--request-id UUID]

Sends a signed webhook as the provider would and prints the answer. Without --url it goes to the local
receiver. The signing secret comes from --secret-file, else from the variable TRIGGER_SECRET, else from
the receiver's first configured key. --secret SECRET works too, but other users of the machine can read
it in the process list. Exits with 0 if the answer is the expected one for this kind.

  mediadock trigger error --request-id 2f0d6c1e-0000-4000-8000-000000000001
  mediadock trigger bad-signature --url https://hooks.example.com/webhooks
  mediadock trigger ok --url https://hooks.example.com/webhooks --secret-file secret.txt
`,
  options,
  words: Object.keys(samples),
  run: async (args, env) => {
    const { values, positionals } = parseArgs({ args, allowPositionals: true, options })
    const [kind = '', ...more] = positionals
    const sample = samples[kind]
    if (!sample || more.length > 0) throw new UsageError(`trigger takes one of ${Object.keys(samples).join(', ')}`)
    const url = values.url ?? `http://127.0.0.1:${env['PORT'] || '3000'}/webhooks`
    const secret = await secretOf(values, env)
    return send(sample, { url, secret, requestId: values['request-id'] ?? randomUUID() })
  },
}

async function send(
  { body, secret: kind, ageSeconds = 0, times = 1, expected }: Sample,
  to: { url: string; secret: string; requestId: string },
): Promise<number> {
  const bytes = Buffer.from(JSON.stringify({ request_id: to.requestId, ...body }))
  const webhookId = randomUUID()
  let asExpected = true
  for (let time = 0; time < times; time += 1) {
    const t = Math.floor(Date.now() / 1000) - ageSeconds
    const response = await fetch(to.url, {
      method: 'POST',
      redirect: 'manual',
      signal: AbortSignal.timeout(deadlineMs),
      headers: {
        'content-type': 'application/json',
        'x-service-webhook-id': webhookId,
        'x-service-timestamp': String(t),
        'x-service-signature': sign(bytes, kind === 'wrong' ? `${to.secret}-wrong` : to.secret, t),
      },
      body: bytes,
    }).catch((cause: unknown) => {
      const action = 'Start a receiver there, or set --url or PORT to another one'
      throw new Error(`no answer from ${to.url} (${describeFailure(cause)}). ${action}`, { cause })
    })
    process.stdout.write(`${response.status} ${oneLine(await response.text())}\n`)
    asExpected &&= response.status === expected
  }
  process.stdout.write(`request_id ${to.requestId}\nwebhook_id ${webhookId}\n`)
  return asExpected ? 0 : 1
}

const shownLength = 500

/** Converts a foreign answer to one short line without control characters. */
function oneLine(answer: string): string {
  return printable(answer.slice(0, shownLength).replaceAll(/\s+/g, ' '))
}

type SecretOptions = { secret?: string; 'secret-file'?: string }

async function secretOf({ secret, 'secret-file': file }: SecretOptions, env: ProcessEnvironment): Promise<string> {
  if (secret !== undefined && file !== undefined)
    throw new UsageError('--secret and --secret-file are both set: use only one')
  const given =
    file === undefined ? (secret ?? (env['TRIGGER_SECRET'] || undefined)) : (await fs.readFile(file, 'utf8')).trim()
  if (given === '')
    throw new UsageError(file === undefined ? '--secret is empty' : 'the file of --secret-file is empty')
  return given ?? firstSecret(env)
}

/** The signing secret of the receiver's first configured key, or of the laptop's demo key. */
async function firstSecret(env: ProcessEnvironment): Promise<string> {
  const file = env['GENERATION_KEYS_FILE'] || undefined
  const local =
    isProduction(env) || file || env['GENERATION_KEYS'] ? undefined : (await readLocalSecrets()).defaults.keys
  if (!file && !env['GENERATION_KEYS'] && !local)
    throw new UsageError(
      'no secret is set: use --secret-file, or set TRIGGER_SECRET, GENERATION_KEYS or GENERATION_KEYS_FILE',
    )
  const reader = settingsReader(env)
  const [key] = readKeys(reader, file, local).all
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  if (!key) throw new UsageError('no keys are configured: use --secret-file, or set TRIGGER_SECRET')
  return key.signingSecret
}
