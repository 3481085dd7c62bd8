import { extensionOf } from '../../platform/media-type.ts'

/** Returns the name of a file in the archive: its hash, with the extension of its type. */
export function nameOfFile({ sha256, contentType }: { sha256: string; contentType: string }): string {
  return `${sha256.slice(0, 2)}/${sha256}.${extensionOf(contentType) ?? 'bin'}`
}

/** Returns the name of a file's thumbnail. */
export function nameOfThumbnail(sha256: string): string {
  return `${sha256.slice(0, 2)}/${sha256}.thumbnail.webp`
}
