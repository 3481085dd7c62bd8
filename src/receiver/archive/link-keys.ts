import type { Credential } from '../../platform/outward/getter.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { postgresTime } from '../../platform/postgres/time.ts'
import { keyOfRequest, sourceOf, type GenerationKey, type Keys } from '../domain/keys.ts'
import { takeCall, type KeyHealth } from '../fetching/call-budget.ts'
import { noteAnswer } from '../fetching/key-health.ts'
import type { Copy } from './copies.ts'
import type { Download } from './download.ts'

export type LinkKeyDeps = { db: Database; keys: () => Keys; fetchRatePerMinute: number }

/** The key that a link needs. The download is one of its calls, so the copy may have to wait: see takeCall(). */
export type LinkKey =
  | { kind: 'not_needed' }
  | { kind: 'taken'; key: GenerationKey; credential: Credential; health: KeyHealth }
  | { kind: 'missing'; detail: string }
  | { kind: 'waits'; detail: string; pauseSeconds: number }

/** Takes a call of a key for a link to the origin of the source's API. No other origin is sent a key. */
export async function takeLinkKey(
  { db, keys, fetchRatePerMinute }: LinkKeyDeps,
  { url, source_name, key_name }: Copy,
): Promise<LinkKey> {
  const source = sourceOf(keys(), source_name)
  const { linkHeaders } = source?.kind ?? {}
  if (source?.apiUrl === undefined || linkHeaders === undefined) return { kind: 'not_needed' }
  const { origin } = new URL(source.apiUrl)
  if (!URL.canParse(url) || new URL(url).origin !== origin) return { kind: 'not_needed' }
  const key = keyOfRequest(keys(), source, key_name)
  if (key?.apiKey === undefined) return { kind: 'missing', detail: `the source ${source.name} has no usable key` }
  const wanted = { keyName: key.name, limitPerMinute: fetchRatePerMinute, purpose: 'completing' } as const
  const grant = await takeCall(db, { ...wanted, now: postgresTime() })
  if (!grant.ok)
    return {
      kind: 'waits',
      detail: `the key ${key.name} has no call left (${grant.reason})`,
      pauseSeconds: Math.max(1, grant.retryAfterSeconds),
    }
  return { kind: 'taken', key, credential: { origin, headers: linkHeaders(key.apiKey) }, health: grant.health }
}

/** Records what a download shows of its key: see isRefusalOfKey(). */
export async function noteLinkKey(
  { db, keys }: LinkKeyDeps,
  { key, health }: Extract<LinkKey, { kind: 'taken' }>,
  download: Download,
): Promise<void> {
  const refused = download.kind === 'key_refused' ? download : undefined
  const refusesKey = refused !== undefined && isRefusalOfKey(refused.status, health)
  const effect = download.kind === 'spooled' ? 'accepted' : refusesKey ? 'refused' : 'none'
  const outcome =
    refused?.status === 429
      ? { kind: 'rate_limited', retryAfterSeconds: refused.retryAfterSeconds }
      : { kind: download.kind }
  await noteAnswer({ db, keys, time: postgresTime }, { key, health, outcome, effect })
}

/** True if the answer refuses the key itself, rather than a file. */
export function isRefusalOfKey(status: number, { refusals }: KeyHealth): boolean {
  return status === 401 || (status === 403 && refusals > 0)
}
