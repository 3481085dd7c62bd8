import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { extensionOf } from '../../platform/media-type.ts'
import type { FilesPlace } from '../../platform/settings.ts'

export type FileName = { sha256: string; contentType: string }

/** Returns the name of a file in the archive: its hash, with the extension of its type. */
export function nameOfFile({ sha256, contentType }: FileName): string {
  return `${sha256.slice(0, 2)}/${sha256}.${extensionOf(contentType) ?? 'bin'}`
}

/** Returns the link of a file in an archive, also before the file is there. */
export function linkInArchive(place: FilesPlace, file: FileName): string {
  const name = nameOfFile(file)
  return place.kind === 'file'
    ? pathToFileURL(path.join(place.root, name)).href
    : `s3://${[place.bucket, place.prefix, name].filter((part) => part !== '').join('/')}`
}
