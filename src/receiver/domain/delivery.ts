import { createHash, hash } from 'node:crypto'
import { jsonOf } from '../../platform/json-text.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Environment } from './environment.ts'
import type { Parsed, Report, UnreadableReason } from './report.ts'
import { requestIdOf, toUuid } from './request-id.ts'
import { storedName, type Source } from './source.ts'
import { isStorable } from './storable.ts'

/** The status of a delivery for each end of a report, in the words of the default source, which sends no CANCELED. */
export const deliveryStatuses = { COMPLETED: 'OK', FAILED: 'ERROR', CANCELED: 'CANCELED' } as const

/** An arrival whose signature is valid, or whose source does not sign. */
export type Admitted = {
  source: Source
  /** See deliveryId(). */
  id: string
  webhookId: string
  keyName: string
  /** The environment of the key at acceptance. Later changes of the keys do not change it. */
  environment: Environment | undefined
  timestampSeconds: number
  receivedAt: Date
  headers: Record<string, string>
  body: Buffer
}

/** An admitted arrival, parsed. It is stored, unless its source does not sign. */
export type Delivery = Omit<Admitted, 'source' | 'timestampSeconds'> & {
  /** See storedName(). */
  sourceName: string | null
  requestId: string | undefined
  status: (typeof deliveryStatuses)[Report['status']] | undefined
  signedAt: Date
  /** One that is unreadable is parked. */
  parsed: Parsed
}

/**
 * The room in memory for deliveries that this process stores. A delivery with room is stored with a claim of this
 * process, and then landed from memory.
 */
export type HandOver = {
  /** How long the claim lasts, unless it is renewed. */
  leaseSeconds: number
  /** Undefined if this process does not take it, for example without room. Any process may then claim it. */
  reserve: (delivery: Delivery) => Reservation | undefined
}

/** The room of one delivery that is being stored. One of these functions is called, once. */
export type Reservation = {
  /** The delivery is committed. */
  makeReady: () => void
  /** The delivery was known already, or its storing was not confirmed. */
  release: () => void
}

/**
 * Larger bodies are verified in turns and leave a part of the memory for bodies to others (intake/body-reader.ts). Their
 * parsed forms, which take several times that memory, are kept only until they are stored: they land from the inbox.
 */
export const largeBodyBytes = 64 * 1024

/** A webhook id: 1 to 255 visible ASCII characters (invalid_webhook_id otherwise). */
export const webhookIdPattern = /^[\x21-\x7e]{1,255}$/

/** Parses an admitted arrival once, into the delivery to store. */
export function toDelivery({ source, timestampSeconds, ...arrived }: Admitted): Delivery {
  const parsed = parseBody(source, arrived.body)
  const { jobId } = parsed
  const sourceName = storedName(source)
  return {
    ...arrived,
    sourceName,
    requestId: jobId === undefined ? undefined : requestIdOf(sourceName, jobId).requestId,
    status: parsed.kind === 'report' ? deliveryStatuses[parsed.report.status] : undefined,
    signedAt: new Date(timestampSeconds * 1000),
    parsed: withoutFiles(parsed),
  }
}

/** Decoded files would double the memory of a delivery that waits to be stored. Its body contains them. */
function withoutFiles(parsed: Parsed): Parsed {
  if (parsed.kind !== 'report') return parsed
  const { files: _files, ...report } = parsed.report
  return { ...parsed, report }
}

/**
 * The most deliveries of one request that stay parked for their key, or for their source. The holder of any key can
 * sign any number of deliveries for a request of the other environment or source. The oldest ones are kept, and land
 * after a correction of the key.
 */
export const maxParkedForRequest = 16

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Parses the bytes of a delivery into a report, or returns the reason for parking them. Never throws. `source` is
 * undefined where the source of a stored delivery is not configured any more.
 */
export function parseBody(source: Source | undefined, body: Uint8Array): Parsed {
  const unreadable = (reason: UnreadableReason) => ({ kind: 'unreadable', reason, jobId: undefined }) as const
  if (source === undefined) return unreadable('unknown_source')
  let text: string
  try {
    text = decoder.decode(body)
  } catch {
    return unreadable('not_utf8')
  }
  const json = jsonOf(text)
  if (json === undefined) return unreadable('not_json')
  const parsed = source.kind.parse(json, source.archive)
  // The id of a hint is visible ASCII (jobIdPattern).
  if (parsed.kind !== 'report' || !suspectEscape.test(text) || isStorable(parsed.report)) return parsed
  return { kind: 'unreadable', reason: 'not_storable', jobId: parsed.jobId }
}

const statedRequest = /"request_id"\s*:\s*"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"/i

/** Returns the request id that a refused body states, for searches by request id. The body is not trusted. */
export function statedRequestId(body: Buffer): string | undefined {
  // A notification carries its request_id near the beginning. A refused body is not worth reading further.
  return statedRequest.exec(body.toString('latin1', 0, 4096))?.[1]?.toLowerCase()
}

// The bytes are valid UTF-8 and valid JSON, so only an escape can produce a character that Postgres cannot store.
const suspectEscape = /\\u(0000|d[89a-f])/i

/**
 * The bytes of a delivery's id that come from its webhook id: enough to tell the webhook ids of a busy day apart. The
 * other 10 come from its body. Finding a body with the id of a given delivery takes about 2^80 tries, which is too many.
 * The holder of a key can find two bodies with one id in about 2^40 tries, but gains nothing: both are its own, and only
 * the first is stored.
 */
const idBytes = 6

/**
 * Returns the identity of a delivery as a uuid: 6 bytes of the SHA-256 of the webhook id, then 10 of the SHA-256 of the
 * body. So one 16-byte key enforces the uniqueness of the pair, and all deliveries of one webhook id are adjacent.
 * Two ids over one body, which is signed, collide with probability 2^-48. The second id has no further effect then.
 *
 * The digest of the body also covers the name of its source, but for the default source, so two sources never share a
 * delivery.
 */
export function deliveryId(webhookId: string, body: Uint8Array, sourceName: string | null = null): string {
  const ofBody =
    sourceName === null ? sha256Hex(body) : createHash('sha256').update(`${sourceName}\n`).update(body).digest('hex')
  return toUuid((sha256Hex(webhookId).slice(0, idBytes * 2) + ofBody).slice(0, 32))
}

/** Returns the range of delivery ids for a webhook id. The text of the webhook id must still be compared. */
export function deliveryIdRange(webhookId: string): { first: string; last: string } {
  const prefix = sha256Hex(webhookId).slice(0, idBytes * 2)
  return { first: toUuid(prefix.padEnd(32, '0')), last: toUuid(prefix.padEnd(32, 'f')) }
}

/** SQL condition: a delivery id lies in the range of a webhook id. Both are columns. */
export function isInIdRange(id: SQL, webhookId: SQL): SQL {
  const prefix = sql`left(encode(sha256(convert_to(${webhookId}, 'UTF8')), 'hex'), ${sql.raw(String(idBytes * 2))})`
  return sql`${id} between rpad(${prefix}, 32, '0')::uuid and rpad(${prefix}, 32, 'f')::uuid`
}

export function sha256Hex(data: string | Uint8Array): string {
  return hash('sha256', data, 'hex')
}
