import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { sign, type Secret } from '../../wire/signature.ts'
import { maxNameCharacters } from './limits.ts'

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
  .refine((key) => key.retired || key.api_key !== undefined, 'api_key may be left out only for a retired key')

const keysSchema = z
  .array(keySchema)
  .min(1, 'at least one key is needed')
  .refine((keys) => new Set(keys.map((key) => key.name)).size === keys.length, 'two keys have the same name')
  .superRefine((keys, context) => {
    // Secrets that differ as text can be the same HMAC key.
    const signatures = keys.map(({ signing_secret }) => sign(new Uint8Array(), signing_secret, 0))
    for (const [at, signature] of signatures.entries()) {
      const first = signatures.indexOf(signature)
      const message = `is the same as that of entry ${first}: a delivery would not show which key signed it`
      if (first < at) context.addIssue({ code: 'custom', path: [at, 'signing_secret'], message })
    }
  })

/**
 * The environment of a key, and of everything that the key signs or tracks. An unknown environment has three forms:
 *
 * - `undefined` in code. A retired key without api_key has no known environment, nor have its requests.
 * - `'unknown'`, stored with a delivery at acceptance. Later changes of the keys do not fill it in.
 * - null in a column: `requests.sandbox` while nothing is known; `deliveries.environment` on rows of releases that did
 *   not store it. The current keys decide for those rows.
 */
export type Environment = 'live' | 'sandbox'

/** The environment stored with a delivery: that of the key that signed it. */
export type SignedEnvironment = Environment | 'unknown'

export type GenerationKey = {
  name: string
  apiKey: string | undefined
  signingSecret: string
  retired: boolean
  /** From the prefix of api_key (spec, Authentication 2); undefined for a retired key without api_key. */
  environment: Environment | undefined
}

/** All keys in one value, so that SIGHUP can replace them while deliveries are being verified. */
export type Keys = {
  all: readonly GenerationKey[]
  secrets: readonly Secret[]
  byName: ReadonlyMap<string, GenerationKey>
}

/** Parses GENERATION_KEYS. Throws an Error whose message names the position and never a value. */
export function parseKeys(text: string): Keys {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Error('is not valid JSON')
  }
  const parsed = keysSchema.safeParse(json)
  if (!parsed.success) {
    throw new Error(
      parsed.error.issues.map((issue) => [issue.path.join('.'), issue.message].filter(Boolean).join(': ')).join('; '),
    )
  }
  const all = parsed.data.map(({ name, api_key, signing_secret, retired }) => ({
    name,
    apiKey: api_key,
    signingSecret: signing_secret,
    retired,
    environment: environmentOf(api_key),
  }))
  return {
    all,
    secrets: all.map(({ name, signingSecret }) => ({ name, signingSecret })),
    byName: new Map(all.map((key) => [key.name, key])),
  }
}

/** Returns the present environment of a key, in the form stored with a delivery. */
export function signedEnvironment({ byName }: Keys, keyName: string): SignedEnvironment {
  return byName.get(keyName)?.environment ?? 'unknown'
}

function environmentOf(apiKey: string | undefined): Environment | undefined {
  if (apiKey?.startsWith('service_live_')) return 'live'
  if (apiKey?.startsWith('service_test_')) return 'sandbox'
  return undefined
}

/** The key names of each environment. A key without a known environment is in neither. */
export type Environments = { live: readonly string[]; sandbox: readonly string[] }

export function environmentsOf(keys: Keys): Environments {
  const named = (environment: string) =>
    keys.all.filter((key) => key.environment === environment).map(({ name }) => name)
  return { live: named('live'), sandbox: named('sandbox') }
}

/**
 * Returns the named key if it may call the provider, or the first such key without a name. Throws HttpError 422
 * unknown_key.
 */
export function usableKey(keys: Keys, name: string | undefined): GenerationKey {
  const usable = keys.all.filter((key) => !key.retired && key.apiKey !== undefined)
  const key = name === undefined ? usable[0] : usable.find((candidate) => candidate.name === name)
  if (key) return key
  const what =
    name === undefined
      ? 'no usable key is configured: add one that is not retired to GENERATION_KEYS'
      : 'no usable key has this key_name'
  throw new HttpError(422, 'unknown_key', what)
}
