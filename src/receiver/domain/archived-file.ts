import { hash } from 'node:crypto'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { contentTypeOf, extensionOf, isOfKind, typeBytes } from '../../platform/media-type.ts'
import type { FilesPlace } from '../../platform/settings.ts'
import type { MediaItem } from './report.ts'

export type FileName = { sha256: string; contentType: string }

/** Returns the name of a file in the archive: its hash, with the extension of its type. */
export function nameOfFile({ sha256, contentType }: FileName): string {
  return `${sha256.slice(0, 2)}/${sha256}.${extensionOf(contentType) ?? 'bin'}`
}

/** Returns the link of a file in an archive, whether or not the file is stored yet. */
export function linkInArchive(place: FilesPlace, file: FileName): string {
  const name = nameOfFile(file)
  return place.kind === 'file'
    ? pathToFileURL(path.join(place.root, name)).href
    : `s3://${[place.bucket, place.prefix, name].filter((part) => part !== '').join('/')}`
}

/** Returns the hash in a link that linkInArchive() made; undefined for other links. */
export function hashInLink(link: string): string | undefined {
  return /^(?:file|s3):\/\/.*\/([0-9a-f]{64})\.[a-z0-9]+$/s.exec(link)?.[1]
}

export type FileInUri = FileName & { kind: MediaItem['kind']; bytes: Buffer }

export const mediaUriPattern = /^data:(image|video|audio)\//i
const base64UriPattern = /^data:(image|video|audio)\/[^,]*;base64,/i

/** Decodes a `data:` URI in base64. Returns undefined for other text, and for a type that the archive does not keep. */
export function fileInUri(uri: string): FileInUri | undefined {
  const [head = '', stated] = base64UriPattern.exec(uri) ?? []
  const kind = (['image', 'video', 'audio'] as const).find((name) => name === stated?.toLowerCase())
  if (kind === undefined) return undefined
  const bytes = Buffer.from(uri.slice(head.length), 'base64')
  const contentType = contentTypeOf(bytes.subarray(0, typeBytes))
  if (contentType === undefined || !isOfKind(contentType, kind)) return undefined
  return { kind, bytes, contentType, sha256: hash('sha256', bytes, 'hex') }
}
