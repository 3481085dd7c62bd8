import { createHash } from 'node:crypto'

/** The id of a request, and the source's own id of the job if the two differ. */
export type RequestIds = { requestId: string; externalId: string | null }

/** Visible ASCII that does not begin with a dot, so that a path with the id has no step `.` or `..`. */
export const jobIdPattern = /^(?!\.)[\x21-\x7e]{1,255}$/

const canonicalUuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
/** Drawn at random once. Another value would give such jobs other request ids. */
const namespace = Buffer.from('d95faf516a044b76b64771573ac1a769', 'hex')

/**
 * Returns the id under which a job is known here. That is the job's own where it is a uuid in the canonical form, as
 * every id of the default source is. Otherwise it is UUID v5 (RFC 9562) of `<name of the source> LF <id of the job>`.
 * `sourceName` is null for the default source: see storedName().
 */
export function requestIdOf(sourceName: string | null, jobId: string): RequestIds {
  if (sourceName === null || canonicalUuid.test(jobId)) return { requestId: jobId, externalId: null }
  const digest = createHash('sha1').update(namespace).update(`${sourceName}\n${jobId}`).digest().subarray(0, 16)
  digest[6] = ((digest[6] ?? 0) & 0x0f) | 0x50
  digest[8] = ((digest[8] ?? 0) & 0x3f) | 0x80
  return { requestId: toUuid(digest.toString('hex')), externalId: jobId }
}

/** Writes 32 hex digits as a uuid. */
export function toUuid(hex: string): string {
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}
