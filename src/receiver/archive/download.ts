import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { contentTypeOf, isOfKind, typeBytes } from '../../platform/media-type.ts'
import { retryAfterOf } from '../../platform/outward/answers.ts'
import { createGetter, discard, type Credential, type OpenedLink } from '../../platform/outward/getter.ts'
import { reasonOf } from '../../platform/outward/poster.ts'
import { isLocalName, isPublicAddress, literalAddress, type Dialling } from '../../platform/outward/public-url.ts'
import { resolve } from '../../platform/outward/resolver.ts'
import { isLoopback } from '../../platform/settings.ts'
import { fileInUri } from '../domain/archived-file.ts'
import { inStore, StoreError, type SpooledFile } from './store.ts'

export type LinkRules = {
  /** MEDIA_HOSTS: the only hosts that are called; undefined allows any. */
  mediaHosts: readonly string[] | undefined
  production: boolean
}

/**
 * Decides from a link alone whether the archive may fetch it. Each redirect is judged too, and the addresses of a name
 * are checked when they are dialled. An address or `localhost` in MEDIA_HOSTS is allowed, also over http. A name in
 * MEDIA_HOSTS is not allowed if it resolves to an address that is not public. Outside production and without
 * MEDIA_HOSTS, this machine is allowed too.
 */
export function judgeLink(link: string, { mediaHosts, production }: LinkRules): Dialling {
  const refused = (why: string): Dialling => ({ kind: 'refused', why })
  if (!URL.canParse(link)) return refused('the link is not a valid URL')
  const url = new URL(link)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return refused('the link is neither https nor http')
  if (url.username !== '' || url.password !== '') return refused('the link contains credentials')
  if (mediaHosts !== undefined && !mediaHosts.includes(url.host))
    return refused(`its host ${url.host} is not in MEDIA_HOSTS`)
  const literal = literalAddress(url.hostname)
  const isThisMachine = isLoopback(literal ?? url.hostname)
  if ((literal !== undefined || isThisMachine) && (mediaHosts !== undefined || (isThisMachine && !production)))
    return { kind: 'named' }
  if (url.protocol !== 'https:') return refused('the link is not https')
  const internal = literal === undefined ? isLocalName(url.hostname) : !isPublicAddress(literal)
  return internal ? refused(`its host ${url.host} is not public`) : { kind: 'public' }
}

export type Download =
  | { kind: 'spooled'; file: SpooledFile }
  /** The provider refuses the file or no longer has it. */
  | { kind: 'gone'; detail: string }
  /** The archive does not keep such a file. Another download would not change that. */
  | { kind: 'refused'; detail: string }
  /** A failure that may be temporary. */
  | { kind: 'unreachable'; detail: string }
  /** The source answered 401, 403 or 429 to a request with its key. */
  | { kind: 'key_refused'; detail: string; status: number; retryAfterSeconds: number | undefined }

export type DownloadWish = {
  url: string
  kind: 'image' | 'video' | 'audio'
  spoolDir: string
  signal: AbortSignal
  /** The credential of the source, for a link that needs its key. */
  credential?: Credential | undefined
}

export type Downloader = ReturnType<typeof createDownloader>

export type DownloaderOptions = LinkRules & {
  maxBytes: number
  slowAfterMs?: number
}

/** A connection without a byte for this long is dead. */
const silenceMs = 30_000
const goneStatuses = new Set([401, 403, 404, 410, 451])
const keyStatuses = new Set([401, 403, 429])
const headers = {
  accept: 'image/*, video/*, audio/*',
  'accept-encoding': 'identity',
  'user-agent': 'mediadock-archive',
}

/** Creates the downloader. It stops beyond `maxBytes`, and as soon as the content is of another kind. */
export function createDownloader({ maxBytes, slowAfterMs = silenceMs, ...rules }: DownloaderOptions) {
  const judge = (link: string) => judgeLink(link, rules)
  const getter = createGetter({ judge, resolve, maxRedirects: 5, connectMs: 10_000, silenceMs, headers })

  const download = async ({ url, kind, spoolDir, signal, credential }: DownloadWish): Promise<Download> => {
    const into = { to: path.join(spoolDir, `${randomUUID()}.part`), maxBytes, kind, slowAfterMs }
    try {
      const inline = fileInUri(url)
      if (inline !== undefined) return await spool([inline.bytes], into)
      const opened = await getter.open(url, signal, credential)
      if (opened.kind === 'refused') return { kind: 'refused', detail: opened.why }
      const problem = problemOf(opened, maxBytes)
      if (problem === undefined) return await spool(opened.response.body, into)
      discard(opened.response)
      return problem
    } catch (error) {
      if (error instanceof StoreError) throw error
      return { kind: 'unreachable', detail: reasonOf(error, 'the download took too long') }
    }
  }
  return { download, close: getter.close }
}

function problemOf(
  { response: { statusCode, headers: given }, withCredential }: Extract<OpenedLink, { kind: 'opened' }>,
  maxBytes: number,
): Download | undefined {
  if (withCredential && keyStatuses.has(statusCode)) {
    const detail = `the source answered ${statusCode} to its key`
    const retryAfter = given['retry-after']
    const retryAfterSeconds = retryAfterOf(typeof retryAfter === 'string' ? retryAfter : null, new Date())
    return { kind: 'key_refused', detail, status: statusCode, retryAfterSeconds }
  }
  if (goneStatuses.has(statusCode)) return { kind: 'gone', detail: `the provider answered ${statusCode}` }
  if (statusCode !== 200) return { kind: 'unreachable', detail: `the provider answered ${statusCode}` }
  const encoding = given['content-encoding'] ?? 'identity'
  if (encoding !== 'identity')
    return {
      kind: 'unreachable',
      detail: `its Content-Encoding is ${String(encoding)}, although identity was requested`,
    }
  return Number(given['content-length'] ?? 0) > maxBytes ? tooLarge(maxBytes) : undefined
}

function tooLarge(maxBytes: number): Download {
  return { kind: 'refused', detail: `it is larger than ${maxBytes} bytes (MEDIA_ARCHIVE_MAX_BYTES)` }
}

type Spooling = { to: string; maxBytes: number; kind: DownloadWish['kind']; slowAfterMs: number }

/** Writes a body to the spool. undici throws if the body ends before its Content-Length. */
async function spool(
  body: AsyncIterable<Buffer> | Buffer[],
  { to, maxBytes, kind, slowAfterMs }: Spooling,
): Promise<Download> {
  const hash = createHash('sha256')
  let head = Buffer.alloc(0)
  let bytes = 0
  let looked = { at: performance.now(), bytes }
  let isKept = false
  const file = await inStore(`writing to ${path.dirname(to)}`, () => fs.open(to, 'wx'))
  try {
    // Leaving the loop destroys the body, and with it the connection.
    for await (const chunk of body) {
      bytes += chunk.length
      if (bytes > maxBytes) return tooLarge(maxBytes)
      const ms = performance.now() - looked.at
      if (ms >= slowAfterMs) {
        // Slower servers are cut, since a few of them would hold up all other copies.
        if ((bytes - looked.bytes) * 1000 < 16_384 * ms)
          return { kind: 'unreachable', detail: 'the download is slower than 16 KiB per second' }
        looked = { at: performance.now(), bytes }
      }
      const isTypeKnown = head.length >= typeBytes
      if (!isTypeKnown) head = Buffer.concat([head, chunk.subarray(0, typeBytes - head.length)])
      // Checked as early as possible, so that an unwanted file does not fill the disk.
      if (!isTypeKnown && head.length >= typeBytes && typeOf(head, kind) === undefined) return wrongType(head, kind)
      hash.update(chunk)
      await inStore(`writing to ${path.dirname(to)}`, () => file.writeFile(chunk))
    }
    const contentType = typeOf(head, kind)
    if (contentType === undefined) return wrongType(head, kind)
    isKept = true
    return { kind: 'spooled', file: { path: to, bytes, contentType, sha256: hash.digest('hex') } }
  } finally {
    await file.close()
    if (!isKept) await fs.rm(to, { force: true }).catch(() => {})
  }
}

function typeOf(head: Buffer, kind: DownloadWish['kind']): string | undefined {
  const contentType = contentTypeOf(head)
  return contentType !== undefined && isOfKind(contentType, kind) ? contentType : undefined
}

function wrongType(head: Buffer, kind: DownloadWish['kind']): Download {
  const found = contentTypeOf(head)
  return {
    kind: 'refused',
    detail: `its content is ${found ?? 'of an unknown type'}, expected ${kind === 'image' ? 'an image' : kind}`,
  }
}
