import { extensionOf } from '../../platform/media-type.ts'

/** Where a file lies in the archive: by its content, and as what it is. */
export function nameOfFile({ sha256, contentType }: { sha256: string; contentType: string }): string {
  return `${sha256.slice(0, 2)}/${sha256}.${extensionOf(contentType) ?? 'bin'}`
}

/** Where its small picture lies. */
export function nameOfThumbnail(sha256: string): string {
  return `${sha256.slice(0, 2)}/${sha256}.thumbnail.webp`
}
