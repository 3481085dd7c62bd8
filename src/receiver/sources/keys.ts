import { z } from 'zod'
import { jsonType, named, placeOf, plainWords } from '../../platform/plain-words.ts'
import { sign } from '../../wire/signature.ts'
import type { Keys } from '../domain/keys.ts'
import { maxNameCharacters } from '../domain/limits.ts'
import { generationQueue } from './generation-queue/source.ts'

/** 128 bits: the shortest secret that cannot be guessed. */
const minSecretBytes = 16

/** HMAC pads a key with zero bytes, so trailing zero bytes of a secret do not change a signature. */
const withoutPadding = (secret: string) => secret.replace(/\0+$/, '')

const keySchema = z
  .object({
    name: z.string().min(1).max(maxNameCharacters),
    api_key: z.string().min(1).optional(),
    signing_secret: z
      .string()
      .refine(
        (secret) => Buffer.byteLength(withoutPadding(secret)) >= minSecretBytes,
        `must have at least ${minSecretBytes} bytes`,
      ),
    retired: z.boolean().default(false),
  })
  .refine((key) => key.retired || key.api_key !== undefined, 'has no api_key. Only a retired key may omit it')

const keysSchema = z
  .array(keySchema)
  .min(1, 'contains no key. Add at least one')
  .refine((keys) => new Set(keys.map((key) => key.name)).size === keys.length, 'contains two keys of the same name')
  .superRefine((keys, context) => {
    // Secrets that differ as text can be the same HMAC key.
    const signatures = keys.map(({ signing_secret }) => sign(new Uint8Array(), signing_secret, 0))
    for (const [at, signature] of signatures.entries()) {
      const first = signatures.indexOf(signature)
      const message = `is the same as that of [${first}]: a delivery would not show which key signed it`
      if (first < at) context.addIssue({ code: 'custom', path: [at, 'signing_secret'], message })
    }
  })

const shape = 'an array of keys, [{"name", "api_key", "signing_secret", "retired"?}]'

/** Parses GENERATION_KEYS. Throws an Error whose message names the place in the text and never a value. */
export function parseKeys(text: string): Keys {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Error('is not valid JSON')
  }
  if (!Array.isArray(json)) throw new Error(`contains ${named(jsonType(json))}. It must contain ${shape}`)
  const parsed = keysSchema.safeParse(json, plainWords)
  if (!parsed.success)
    throw new Error(parsed.error.issues.map(({ path, message }) => `${placeOf(path)} ${message}`.trim()).join('; '))
  return keysOf(parsed.data)
}

/** The keys of settings that have problems. */
export const noKeys = keysOf([])

function keysOf(entries: readonly z.infer<typeof keySchema>[]): Keys {
  const secrets = entries.map(({ name, signing_secret }) => ({ name, signingSecret: signing_secret }))
  const first = { name: 'generation-queue', kind: generationQueue, secrets }
  const all = entries.map(({ name, api_key, signing_secret, retired }) => ({
    name,
    source: first,
    apiKey: api_key,
    signingSecret: signing_secret,
    retired,
    environment: api_key === undefined ? undefined : generationQueue.promises.environmentOf(api_key),
  }))
  return { all, byName: new Map(all.map((key) => [key.name, key])), first }
}
