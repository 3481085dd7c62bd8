import type { Logger } from '../../platform/logger.ts'
import { describeFailure, readBounded } from '../../platform/outward/answers.ts'
import type { Keys } from '../domain/keys.ts'
import { maxAnswerBytes, type Source } from '../domain/source.ts'

type KeySetsDeps = { fetch: typeof globalThis.fetch; clock: () => Date; logger: Logger; cut: AbortSignal }

type KeySet = { keys: readonly string[]; fetchedAtMs: number; triedAtMs: number; isInDoubt: boolean }

/**
 * Keeps the public keys of sources that sign with a private key, in memory, by the URL of their set. After a fetch that
 * fails or finds no key, the earlier keys stay.
 */
export function createKeySets(deps: KeySetsDeps) {
  const sets = new Map<string, KeySet>()
  let applied: { from: Keys; to: Keys } | undefined

  const refresh = async (url: string, { kind, name }: Source): Promise<void> => {
    const now = deps.clock().getTime()
    const set = sets.get(url) ?? { keys: [], fetchedAtMs: -Infinity, triedAtMs: -Infinity, isInDoubt: false }
    // fal allows its customers to keep a key set for 24 h. It is fetched again after half of that, so that an outage of
    // 12 h does no harm.
    const isDue = set.isInDoubt || now - set.fetchedAtMs >= 12 * 3_600_000
    // Anyone can send a signature that matches no key, so doubt must not cost more calls than this.
    if (!isDue || now - set.triedAtMs < 60_000) return
    set.triedAtMs = now
    sets.set(url, set)
    try {
      const keys = kind.keySet?.keysIn(await fetchJson(deps, url))
      if (keys === undefined) throw new Error('the answer contains no public key')
      sets.set(url, { keys, fetchedAtMs: now, triedAtMs: now, isInDoubt: false })
      applied = undefined
    } catch (error) {
      const facts = { source: name, detail: describeFailure(error), kept: set.keys.length }
      deps.logger.warn(facts, 'the public keys of a source were not fetched; the next try follows in a minute')
    }
  }

  return {
    /** Puts the public keys that were fetched into the sources that verify with them. */
    apply: (keys: Keys): Keys => {
      if (applied?.from !== keys) applied = { from: keys, to: withPublicKeys(keys, (url) => sets.get(url)?.keys ?? []) }
      return applied.to
    },
    /** A signature matched no public key, so the set may have changed. */
    doubt: ({ keySetUrl }: Source): void => {
      const set = keySetUrl === undefined ? undefined : sets.get(keySetUrl)
      if (set !== undefined) set.isInDoubt = true
    },
    /** Fetches the key sets that are missing, in doubt or old. */
    runOnce: async ({ sources }: Keys) => {
      const wanted = new Map([...sources.values()].map((source) => [source.keySetUrl, source]))
      for (const url of sets.keys()) if (!wanted.has(url)) sets.delete(url)
      await Promise.all([...wanted].flatMap(([url, source]) => (url === undefined ? [] : [refresh(url, source)])))
      return { more: false } as const
    },
  }
}

async function fetchJson({ fetch, cut }: KeySetsDeps, url: string): Promise<unknown> {
  const signal = AbortSignal.any([AbortSignal.timeout(10_000), cut])
  const response = await fetch(url, { redirect: 'manual', headers: { accept: 'application/json' }, signal })
  const text = await readBounded(response, maxAnswerBytes)
  if (response.status !== 200) throw new Error(`answered ${response.status}`)
  if (text === undefined) throw new Error(`the answer is larger than ${maxAnswerBytes} bytes`)
  return JSON.parse(text.toString('utf8'))
}

/**
 * Replaces the secrets of sources with a key set by the public keys. Such a signature does not show which API key
 * submitted the job, so it counts for the source's first key.
 */
function withPublicKeys(keys: Keys, publicKeysAt: (url: string) => readonly string[]): Keys {
  const verifying = new Map(
    [...keys.sources.values()].map((source) => {
      const { name, keySetUrl, account } = source
      const owner = keys.all.find((key) => key.source.name === name)?.name ?? name
      const secretOf = (signingSecret: string) => ({ name: owner, signingSecret, account })
      return [name, keySetUrl === undefined ? source : { ...source, secrets: publicKeysAt(keySetUrl).map(secretOf) }]
    }),
  )
  const all = keys.all.map((key) => ({ ...key, source: verifying.get(key.source.name) ?? key.source }))
  return { ...keys, all, byName: new Map(all.map((key) => [key.name, key])), sources: verifying }
}
