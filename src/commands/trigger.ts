import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import { readProviderSecretKey, readSome } from '../config/config.ts'
import { readLocalSecrets } from '../laptop/local.ts'
import { describeFailure } from '../platform/outward/answers.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import { falWebhookOf, predictionOf } from '../provider/webhooks/shapes.ts'
import type { Keys } from '../receiver/domain/keys.ts'
import { readSources } from '../receiver/settings.ts'
import { falKeyOf, signFalWebhook } from '../wire/fal-signature.ts'
import { sign } from '../wire/signature.ts'
import { signStandardWebhook } from '../wire/standard-webhooks.ts'
import { defineCommand, printable, UsageError } from './usage.ts'

type Ending = 'ok' | 'error'

/** The values that a signature needs. `secret` is the signing secret of the key, or PROVIDER_SECRET_KEY for fal. */
type Signing = { id: string; jobId: string; account: string; secret: string; timestampSeconds: number }

/** How an API sends the end of a job. */
type Sender = {
  body: (jobId: string, ending: Ending) => object
  /** Undefined where webhooks are not signed. */
  headers: ((body: Buffer, signing: Signing) => Record<string, string>) | undefined
  /** Makes a job's id from a uuid, for an API whose ids have another form. */
  jobIdOf?: (uuid: string) => string
}

const [link, image] = ['https://media.example/sample.mp4', 'https://media.example/sample.png']
const message = 'sample failure'
const output = { images: [{ url: image, width: 64, height: 64 }] }
const error = { code: 'GENERATION_FAILED', message }
const ends = (jobId: string, ending: Ending) =>
  ending === 'ok'
    ? { request_id: jobId, status: 'COMPLETED' as const, model: 'sample-image', output }
    : { request_id: jobId, status: 'FAILED' as const, model: 'sample-image', error }

const ok = (output: object, model: string) => ({ status: 'OK', payload: { model, output, cost: 4 } })

/** The body of a notification of the generation queue API (spec, Events). */
export function notificationOf(jobId: string, ending: Ending): object {
  return ending === 'ok'
    ? { request_id: jobId, ...ok({ images: [{ url: image }] }, 'sample-image') }
    : { request_id: jobId, status: 'ERROR', error }
}

const standard: Sender['headers'] = (body, signing) => signStandardWebhook(body, signing)

export const senders: Readonly<Record<string, Sender>> = {
  fal: {
    body: (jobId, ending) => falWebhookOf(ends(jobId, ending)),
    headers: (body, { jobId: requestId, account: userId, secret, timestampSeconds }) =>
      signFalWebhook(body, { key: falKeyOf(Buffer.from(secret, 'base64')), requestId, userId, timestampSeconds }),
  },
  gemini: {
    // There is no event for a failure.
    body: (id) => ({ type: 'video.generated', version: 'v1', data: { id, file_name: 'files/sample' } }),
    headers: standard,
    jobIdOf: (uuid) => `models/sample/operations/${uuid}`,
  },
  luma: {
    body: (id, ending) =>
      ending === 'ok'
        ? { id, state: 'completed', model: 'ray-2', assets: { video: link } }
        : { id, state: 'failed', model: 'ray-2', failure_reason: message },
    headers: undefined,
  },
  'openrouter-video': {
    body: (id, ending) => {
      const status = ending === 'ok' ? 'completed' : 'failed'
      return { type: `video.generation.${status}`, data: { id, status, ...(ending === 'error' && { error: message }) } }
    },
    headers: (body, { id, secret, timestampSeconds }) => ({
      'x-openrouter-idempotency-key': id,
      'x-openrouter-signature': sign(body, secret, timestampSeconds, ','),
    }),
  },
  replicate: { body: (jobId, ending) => predictionOf(ends(jobId, ending)), headers: standard },
  'standard-webhooks': { body: notificationOf, headers: standard },
}

/** A way to send a webhook: once and with the expected answer 200, unless it says otherwise. */
type Sample = {
  /** Only the default source sends it. Every kind of source has the other samples. */
  body?: object
  /** The signature is of other bytes. */
  isForged?: boolean
  ageSeconds?: number
  times?: number
  expected?: number
}

const samples: Readonly<Record<string, Sample>> = {
  ok: {},
  error: {},
  // A webhook contains only the first picture of several. The receiver fetches the rest.
  'multi-image': { body: ok({ images: [{ url: image }] }, 'sample-image-set') },
  video: { body: ok({ video: { url: link } }, 'sample-video') },
  audio: { body: ok({ audio: { url: 'https://media.example/sample.mp3' } }, 'sample-audio') },
  duplicate: { times: 2 },
  'bad-signature': { isForged: true, expected: 401 },
  stale: { ageSeconds: 301, expected: 401 },
}

const defaultSender: Sender = {
  body: notificationOf,
  headers: (body, { id, secret, timestampSeconds }) => ({
    'x-service-webhook-id': id,
    'x-service-timestamp': String(timestampSeconds),
    'x-service-signature': sign(body, secret, timestampSeconds),
  }),
}

export const command = defineCommand({
  help: `
mediadock trigger [<kind>] <${Object.keys(samples).join('|')}>
                  [--source NAME] [--url URL] [--secret-file FILE | --secret SECRET] [--request-id UUID]

Sends a signed webhook as the provider would and prints the answer. Without --url it goes to the local
receiver. The secret comes from --secret-file or --secret, else from the variable TRIGGER_SECRET, else from the
first configured key. Other users of the machine can read the value of --secret. Exits with 0 for the expected
answer, which is 401 for bad-signature and stale. A kind sends ok, error, duplicate, bad-signature or stale as
that API would, to the source of SOURCES_FILE that --source names, or that has the kind's name. Kinds:
${Object.keys(senders).join(', ')}. Webhooks of fal are signed with
PROVIDER_SECRET_KEY, those of luma are not signed.

  mediadock trigger bad-signature --url https://hooks.example.com/webhooks --secret-file secret.txt
  mediadock trigger replicate error --source pictures
`,
  options: {
    url: { type: 'string' },
    'secret-file': { type: 'string' },
    secret: { type: 'string' },
    'request-id': { type: 'string' },
    source: { type: 'string' },
  },
  takesWords: true,
  run: async (options, words, env) => {
    const hasKind = senders[words[0] ?? ''] !== undefined
    const [kind, name = hasKind ? 'ok' : '', ...more] = hasKind ? words : [undefined, ...words]
    const known = Object.keys(samples).filter((one) => kind === undefined || samples[one]?.body === undefined)
    const sample = known.includes(name) ? samples[name] : undefined
    if (sample === undefined || more.length > 0) throw new UsageError(`trigger takes one of ${known.join(', ')}`)
    if (kind === undefined && options.source !== undefined)
      throw new UsageError('--source needs a kind before the sample: mediadock trigger <kind> ok --source <name>')
    const sender = senders[kind ?? ''] ?? defaultSender
    const sourceName = kind === undefined ? undefined : (options.source ?? kind)
    const path = sourceName === undefined ? '/webhooks' : `/webhooks/${sourceName}`
    const url = options.url ?? `http://127.0.0.1:${env['PORT'] || '3000'}${path}`
    const signer = sender.headers === undefined ? unsigned : await signerOf({ ...options, kind, sourceName }, env)
    const uuid = options['request-id'] ?? randomUUID()
    const jobId = sender.jobIdOf?.(uuid) ?? uuid
    if (sender.headers === undefined && sample.expected === 401)
      throw new UsageError(`webhooks of ${kind} are not signed: use ok, error or duplicate`)
    const body =
      sample.body === undefined
        ? sender.body(jobId, name === 'error' ? 'error' : 'ok')
        : { request_id: jobId, ...sample.body }
    return send({ ...sample, body }, { sender, url, jobId, ...signer })
  },
})

type Signer = { secret: string; account: string }
const unsigned: Signer = { secret: '', account: '' }

async function send(
  { body, isForged = false, ageSeconds = 0, times = 1, expected = 200 }: Sample,
  to: Signer & { sender: Sender; url: string; jobId: string },
): Promise<number> {
  const bytes = Buffer.from(JSON.stringify(body))
  const signed = isForged ? Buffer.concat([bytes, Buffer.from(' ')]) : bytes
  const id = randomUUID()
  let asExpected = true
  for (let time = 0; time < times; time += 1) {
    const timestampSeconds = Math.floor(Date.now() / 1000) - ageSeconds
    const response = await fetch(to.url, {
      method: 'POST',
      redirect: 'manual',
      signal: AbortSignal.timeout(15_000),
      headers: { 'content-type': 'application/json', ...to.sender.headers?.(signed, { ...to, id, timestampSeconds }) },
      body: bytes,
    }).catch((cause: unknown) => {
      const action = 'Start a receiver there, or set --url or PORT to another one'
      throw new Error(`no answer from ${to.url} (${describeFailure(cause)}). ${action}`, { cause })
    })
    const answer = (await response.text()).slice(0, 500).replaceAll(/\s+/g, ' ')
    process.stdout.write(`${response.status} ${printable(answer)}\n`)
    asExpected &&= response.status === expected
  }
  process.stdout.write(`request_id ${to.jobId}\nwebhook_id ${id}\n`)
  return asExpected ? 0 : 1
}

type SignerOptions = {
  secret?: string
  'secret-file'?: string
  kind: string | undefined
  sourceName: string | undefined
}

async function signerOf(
  { secret, 'secret-file': file, kind, sourceName }: SignerOptions,
  env: ProcessEnvironment,
): Promise<Signer> {
  if (secret !== undefined && file !== undefined)
    throw new UsageError('--secret and --secret-file are both set: use only one')
  const given =
    file === undefined ? (secret ?? (env['TRIGGER_SECRET'] || undefined)) : (await fs.readFile(file, 'utf8')).trim()
  if (given === '')
    throw new UsageError(file === undefined ? '--secret is empty' : 'the file of --secret-file is empty')
  const source =
    sourceName === undefined || !env['SOURCES_FILE'] ? undefined : (await keysOf(env)).sources.get(sourceName)
  const account = source?.account ?? 'local'
  if (given !== undefined) return { secret: given, account }
  if (kind === 'fal') {
    const { secretKey } = (await readLocalSecrets(env)).defaults
    return { secret: readProviderSecretKey(env, secretKey).toString('base64'), account }
  }
  const [first] = sourceName === undefined ? (await keysOf(env)).defaultSource.secrets : (source?.secrets ?? [])
  if (first !== undefined) return { secret: first.signingSecret, account }
  throw new UsageError(
    sourceName === undefined
      ? 'no keys are configured: use --secret-file, or set TRIGGER_SECRET'
      : `no source ${sourceName} is in SOURCES_FILE: use --source or --secret-file, or set TRIGGER_SECRET`,
  )
}

async function keysOf(env: ProcessEnvironment): Promise<Keys> {
  const given = env['GENERATION_KEYS_FILE'] || env['GENERATION_KEYS']
  const local = given ? undefined : (await readLocalSecrets(env)).defaults.keys
  if (!given && !local)
    throw new UsageError(
      'no secret is set: use --secret-file, or set TRIGGER_SECRET, GENERATION_KEYS or GENERATION_KEYS_FILE',
    )
  return readSome(env, (reader) => readSources(reader, { keys: local })).keys
}
