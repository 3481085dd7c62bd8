import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import fs from 'node:fs/promises'
import { contentTypeOf, isOfKind, typeBytes } from '../../platform/media-type.ts'
import { createGetter, discard } from '../../platform/outward/getter.ts'
import type { Dialling } from '../../platform/outward/public-url.ts'
import type { Resolve } from '../../platform/outward/resolver.ts'
import { EngineError, placeOf, type Reference } from '../engines/engine.ts'
import { judgeReference, type ReferenceLink, type ReferenceRules } from './reference-links.ts'

const maxBytesOf: Record<Reference['kind'], number> = {
  image: 20_000_000,
  video: 100_000_000,
  audio: 100_000_000,
}
const headers = {
  accept: 'image/*, video/*, audio/*',
  'accept-encoding': 'identity',
  'user-agent': 'mediadock-provider',
}

/** Formats that every engine reads. Some others, such as AVIF, need far more memory per pixel. */
const pictureTypes = new Set(['image/png', 'image/jpeg', 'image/webp'])
const kindNames: Record<Reference['kind'], string> = {
  image: 'a PNG, JPEG or WebP picture',
  video: 'a video',
  audio: 'a sound',
}

export type FetcherOptions = ReferenceRules & { resolve: Resolve; deadlineMs?: number }

/** `allowance`: the remaining bytes for all fetched references of one request. */
type Fetching = { reference: ReferenceLink; to: string; allowance: { bytes: number }; signal: AbortSignal }

/** Fetches references. Each chunk is written to the file at once, so memory stays flat. */
export function createReferenceFetcher({
  resolve,
  // Limit for one reference, from the lookup of its host to its last byte. A picture of 20 MB needs 16 Mbit/s.
  deadlineMs = 10_000,
  ...rules
}: FetcherOptions) {
  // Redirects to the own media host are refused, because its files are read from the folder, never over HTTP.
  const judge = (link: string): Dialling => {
    const place = judgeReference(link, rules)
    return place.kind === 'own' ? { kind: 'refused', why: 'must not point to the media host' } : place
  }
  const limits = { maxRedirects: 3, connectMs: deadlineMs, silenceMs: deadlineMs }
  const getter = createGetter({ judge, resolve, headers, ...limits })

  /** Writes the file to `to`. For a bad reference, rejects with an EngineError that names its place in the input. */
  const fetch = async ({ reference, to, allowance, signal }: Fetching): Promise<Reference> => {
    const deadline = AbortSignal.timeout(deadlineMs)
    const { link, ...described } = reference
    const place = judgeReference(link, rules)
    try {
      const spooled =
        place.kind === 'own'
          ? await spool(contentOf(place.file), { to, reference })
          : await spool(await open(reference, AbortSignal.any([signal, deadline])), { to, reference, allowance })
      return { ...described, path: to, ...spooled }
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof StorageError || error instanceof EngineError) throw error
      if (place.kind === 'own') throw unusable(reference, 'is not on the media host', error)
      const what = deadline.aborted ? `took longer than ${deadlineMs / 1000} s to fetch` : 'could not be fetched'
      throw unusable(reference, what, error)
    }
  }

  const open = async (reference: ReferenceLink, signal: AbortSignal): Promise<AsyncIterable<Buffer>> => {
    const opened = await getter.open(reference.link, signal)
    if (opened.kind === 'refused') throw new Error(opened.why)
    const { statusCode, headers, body } = opened.response
    const isTooLarge = Number(headers['content-length'] ?? 0) > maxBytesOf[reference.kind]
    if (statusCode === 200 && !isTooLarge) return body
    discard(opened.response)
    if (statusCode === 200) throw tooLarge(reference)
    throw unusable(reference, `could not be fetched: the answer was ${statusCode}`)
  }
  return { fetch, close: getter.close }
}

/**
 * Opens the file only when it is read. A stream that is made before would throw its error into the process, if the file
 * is missing and nothing reads the stream yet.
 */
async function* contentOf(file: string): AsyncGenerator<Buffer> {
  yield* createReadStream(file)
}

/** The reference is refused. The message is for the client. */
function unusable(reference: ReferenceLink, what: string, cause?: unknown): EngineError {
  return new EngineError(`${placeOf(reference)} ${what}`, { cause })
}

function tooLarge(reference: ReferenceLink): EngineError {
  return unusable(reference, `is larger than ${maxBytesOf[reference.kind] / 1_000_000} MB`)
}

/** The disk failed, not the reference. A retry may succeed. */
class StorageError extends Error {
  override name = 'StorageError'
  code = 'storage' as const
}

type Spooling = Pick<Fetching, 'to' | 'reference'> & Partial<Pick<Fetching, 'allowance'>>

/** Writes a body to a file. Only what is fetched, with an allowance, has limits. */
async function spool(
  body: AsyncIterable<Buffer>,
  { to, reference, allowance }: Spooling,
): Promise<Pick<Reference, 'contentType' | 'sha256'>> {
  const hash = createHash('sha256')
  let head = Buffer.alloc(0)
  let bytes = 0
  const file = await ours(() => fs.open(to, 'wx', 0o600))
  try {
    // Leaving the loop destroys the body and its connection.
    for await (const chunk of body) {
      bytes += chunk.length
      if (allowance) {
        if (bytes > maxBytesOf[reference.kind]) throw tooLarge(reference)
        allowance.bytes -= chunk.length
        if (allowance.bytes < 0) throw new EngineError('the references of the request are too large together')
      }
      if (head.length < typeBytes) {
        head = Buffer.concat([head, chunk.subarray(0, typeBytes - head.length)])
        // Checked early, so that a file of a wrong type does not fill the disk.
        if (head.length >= typeBytes) typeOf(head, reference)
      }
      hash.update(chunk)
      await ours(() => file.writeFile(chunk))
    }
    return { contentType: typeOf(head, reference), sha256: hash.digest('hex') }
  } finally {
    await file.close()
  }
}

function typeOf(head: Buffer, reference: ReferenceLink): string {
  const { kind } = reference
  const type = contentTypeOf(head)
  const isTaken = type !== undefined && (kind === 'image' ? pictureTypes.has(type) : isOfKind(type, kind))
  if (!isTaken) throw unusable(reference, `is not ${kindNames[kind]}`)
  return type
}

async function ours<T>(step: () => Promise<T>): Promise<T> {
  return step().catch((cause) => {
    throw new StorageError('a reference could not be written', { cause })
  })
}
