import { HttpError } from '../../platform/http/http.ts'
import type { Environment } from './environment.ts'
import { storedName, type Source } from './source.ts'

export type GenerationKey = {
  name: string
  source: Source
  apiKey: string | undefined
  signingSecret: string
  retired: boolean
  /** Undefined where the api_key of a key of the default source does not show it. */
  environment: Environment | undefined
}

/** All keys and their sources in one value, so that SIGHUP can replace them while deliveries are being verified. */
export type Keys = {
  all: readonly GenerationKey[]
  byName: ReadonlyMap<string, GenerationKey>
  /** The source of `POST /webhooks`, whose keys are GENERATION_KEYS. */
  defaultSource: Source
  /** The sources of SOURCES_FILE, by name. */
  sources: ReadonlyMap<string, Source>
}

/** Returns the source of this name, as stored or as readers see it; undefined if it is not configured any more. */
export function sourceOf({ defaultSource, sources }: Keys, name: string | null): Source | undefined {
  return name === null || name === defaultSource.name ? defaultSource : sources.get(name)
}

/** Returns the present environment of a key; undefined where it is unknown, or the key is not configured. */
export function environmentOfKey({ byName }: Keys, keyName: string): Environment | undefined {
  return byName.get(keyName)?.environment
}

/** How long links last in seconds, by the stored name of their source; `''` for the default source. */
export type LinkLives = Readonly<Record<string, number>>

/** Returns how long links last, for the sources that promise it. */
export function linkLives({ defaultSource, sources }: Keys): LinkLives {
  const lives = [defaultSource, ...sources.values()].flatMap((source) => {
    const { linkLifeSeconds } = source.kind
    return linkLifeSeconds === undefined ? [] : [[storedName(source) ?? '', linkLifeSeconds] as const]
  })
  return Object.fromEntries(lives)
}

export function keyNamesOf({ all }: Keys, { name }: Source): string[] {
  return all.filter((key) => key.source.name === name).map((key) => key.name)
}

/** Returns true if calls may be made with the key. */
export function isUsable({ retired, apiKey }: GenerationKey): boolean {
  return !retired && apiKey !== undefined
}

/** Returns the key of a request, or another key of its source if that key cannot make calls any more. */
export function keyOfRequest(keys: Keys, source: Source, keyName: string | null): GenerationKey | undefined {
  const usable = usableKeysOf(keys, source)
  return usable.find(({ name }) => name === keyName) ?? usable[0]
}

/** Returns the keys with which a source may be called. */
export function usableKeysOf({ all }: Keys, { name }: Source): GenerationKey[] {
  return all.filter((key) => key.source.name === name && isUsable(key))
}

/**
 * Returns the named key if it may call its source, or without a name the first key of the default source.
 * `ofDefaultSource` refuses keys of other sources. Throws HttpError 422 unknown_key.
 */
export function usableKey(keys: Keys, name: string | undefined, { ofDefaultSource = false } = {}): GenerationKey {
  const defaults = usableKeysOf(keys, keys.defaultSource)
  const usable = ofDefaultSource ? defaults : keys.all.filter(isUsable)
  const key = name === undefined ? defaults[0] : usable.find((candidate) => candidate.name === name)
  if (key) return key
  const what =
    name === undefined
      ? 'no key of the default source is usable: add one that is not retired, ' +
        'or name a key of another source as key_name'
      : 'no usable key has this key_name'
  throw new HttpError(422, 'unknown_key', what)
}
