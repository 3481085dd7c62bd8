import { createHmac } from 'node:crypto'
import { z } from 'zod'
import { jsonOf } from '../../platform/json-text.ts'
import { jsonType, named, placeOf, plainWords } from '../../platform/plain-words.ts'
import { httpUrl, isLoopback, type FilesPlace } from '../../platform/settings.ts'
import type { GenerationKey, Keys } from '../domain/keys.ts'
import { maxNameCharacters } from '../domain/limits.ts'
import { defaultSourceName, type Source, type SourceKind } from '../domain/source.ts'
import { generationQueue } from './generation-queue/source.ts'
import { kinds } from './kinds.ts'

const keySchema = z.object({
  name: z.string().min(1).max(maxNameCharacters),
  api_key: z.string().min(1).optional(),
  signing_secret: z.string().optional(),
  retired: z.boolean().default(false),
})
const keysSchema = z.array(keySchema).min(1, 'contains no key. Add at least one')
type Entry = z.infer<typeof keySchema>

type Problem = { path: (string | number)[]; message: string }

/** Each problem of the keys of a source. A source without a URL is not called, so its keys need no `api_key`. */
function problemsOf(keys: readonly Entry[], { secrets }: SourceKind, isCalled: boolean): Problem[] {
  const problems: Problem[] = []
  // Secrets that differ as text can be the same HMAC key.
  const signatures: string[] = []
  for (const [at, { api_key, signing_secret, retired }] of keys.entries()) {
    if (isCalled && !retired && api_key === undefined)
      problems.push({ path: [at], message: 'has no api_key. Only a retired key may omit it' })
    if (!isCalled && api_key !== undefined) problems.push({ path: [at, 'api_key'], message: 'needs api_url' })
    const refuse = (message: string) => problems.push({ path: [at, 'signing_secret'], message })
    if (secrets === undefined) {
      if (signing_secret !== undefined) refuse('must be left out: webhooks of this kind are not signed with secrets')
      continue
    }
    const bytes = signing_secret === undefined ? undefined : secrets.keyBytes(signing_secret)
    if (bytes === undefined) refuse(signing_secret === undefined ? 'is missing' : `must ${secrets.mustBe}`)
    const signature = bytes === undefined ? `${at}` : createHmac('sha256', bytes).digest('hex')
    const first = signatures.indexOf(signature)
    if (first >= 0) refuse(`is the same as that of [${first}]: a delivery would not show which key signed it`)
    signatures.push(signature)
  }
  if (hasRepeated(keys)) problems.push({ path: [], message: 'contains two keys of the same name' })
  return problems
}

const hasRepeated = (named: readonly { name: string }[]) => new Set(named.map(({ name }) => name)).size < named.length

const defaultKeysSchema = keysSchema.superRefine((keys, context) => {
  for (const problem of problemsOf(keys, generationQueue, true)) context.addIssue({ code: 'custom', ...problem })
})

const apiUrlSchema = httpUrl.refine((text) => {
  const { protocol, hostname, username, search, hash } = new URL(text)
  return (protocol === 'https:' || isLoopback(hostname)) && username + search + hash === ''
}, 'must be an https URL without credentials, query and fragment')

const sourceSchema = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9-]{0,62}$/, 'must be 1 to 63 lower-case letters, digits and hyphens, no hyphen first')
      .refine((name) => name !== defaultSourceName, `must not be ${defaultSourceName}`),
    kind: z.enum(Object.keys(kinds)).transform((name) => kinds[name]!),
    keys: keysSchema,
    api_url: apiUrlSchema.optional(),
    account: z.string().min(1).max(255).optional(),
    key_set_url: apiUrlSchema.optional(),
  })
  .transform(({ api_url, key_set_url, ...source }) => {
    const { apiUrl, keySet } = source.kind
    return { ...source, apiUrl: api_url ?? apiUrl, keySetUrl: key_set_url ?? keySet?.url }
  })
  .superRefine(({ keys, kind, apiUrl, keySetUrl, account }, context) => {
    const { keySet } = kind
    if (keySet === undefined && (account ?? keySetUrl) !== undefined)
      context.addIssue({ code: 'custom', message: 'must not have account or key_set_url: its kind has no key set' })
    if (keySet !== undefined && account === undefined)
      context.addIssue({ code: 'custom', path: ['account'], message: 'is missing' })
    for (const { path, message } of problemsOf(keys, kind, apiUrl !== undefined))
      context.addIssue({ code: 'custom', path: ['keys', ...path], message })
  })

const sourcesSchema = z
  .array(sourceSchema)
  .refine((sources) => !hasRepeated(sources), 'contains two sources of the same name')

const shapeOfKeys = 'an array of keys, [{"name", "api_key", "signing_secret", "retired"?}]'
const shapeOfSources = 'an array of sources, [{"name", "kind", "keys": […]}]'

/** Parses GENERATION_KEYS. The message of an error says what is wrong and where, without a value. */
export function parseKeys(text: string): Keys {
  return keysOf(parse({ schema: defaultKeysSchema, shape: shapeOfKeys }, text))
}

/** Adds the sources of SOURCES_FILE to the keys of the default source, in place of those added earlier. */
export function withSources(keys: Keys, text: string, archive?: FilesPlace): Keys {
  const added = parse({ schema: sourcesSchema, shape: shapeOfSources }, text).map(({ keys: entries, ...source }) =>
    sourceWithKeys({ ...source, archive }, entries),
  )
  const own = keys.all.filter(({ source }) => source === keys.defaultSource)
  const all = [...own, ...added.flatMap((one) => one.keys)]
  if (all.length === 0) throw new Error('contains no source, and no key of the default source is configured')
  if (hasRepeated(all))
    throw new Error("contains a key with the name of another source's key. Key names are unique over all sources")
  const sources = new Map(added.map(({ source }) => [source.name, source]))
  return { ...keys, all, byName: new Map(all.map((key) => [key.name, key])), sources }
}

function parse<T>({ schema, shape }: { schema: z.ZodType<T>; shape: string }, text: string): T {
  const json = jsonOf(text)
  if (json === undefined) throw new Error('is not valid JSON')
  if (!Array.isArray(json)) throw new Error(`contains ${named(jsonType(json))}. It must contain ${shape}`)
  const parsed = schema.safeParse(json, plainWords)
  if (parsed.success) return parsed.data
  throw new Error(parsed.error.issues.map(({ path, message }) => `${placeOf(path)} ${message}`.trim()).join('; '))
}

export const noKeys = keysOf([])

function keysOf(entries: readonly Entry[]): Keys {
  const { source, keys: all } = sourceWithKeys({ name: defaultSourceName, kind: generationQueue }, entries)
  return { all, byName: new Map(all.map((key) => [key.name, key])), defaultSource: source, sources: new Map() }
}

function sourceWithKeys(
  stated: Omit<Source, 'secrets'>,
  entries: readonly Entry[],
): { source: Source; keys: GenerationKey[] } {
  const secrets = entries.map(({ name, signing_secret = '' }) => ({ name, signingSecret: signing_secret }))
  const source = { ...stated, secrets: stated.keySetUrl === undefined ? secrets : [] }
  const { environmentOf = () => 'live' as const } = stated.kind
  const keys = entries.map(({ name, api_key, signing_secret = '', retired }) => ({
    name,
    source,
    apiKey: api_key,
    signingSecret: signing_secret,
    retired,
    environment: environmentOf(api_key),
  }))
  return { source, keys }
}
