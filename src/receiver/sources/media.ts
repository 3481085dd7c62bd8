import { z } from 'zod'
import type { FilesPlace } from '../../platform/settings.ts'
import { urlSchema, maxOutputItems } from '../../wire/schemas.ts'
import { fileInUri, linkInArchive, mediaUriPattern } from '../domain/archived-file.ts'
import { maxInteger } from '../domain/limits.ts'
import type { InlineFile, MediaItem, Report } from '../domain/report.ts'

type Kind = MediaItem['kind']

/** A width or height. A value that the columns refuse is omitted. */
export const pixels = z.int().positive().max(maxInteger).optional().catch(undefined)
const fileSchema = z.object({
  content_type: z.string().optional().catch(undefined),
  width: pixels,
  height: pixels,
  duration: z.number().nonnegative().optional().catch(undefined),
})
type File = z.infer<typeof fileSchema>

const extensions: readonly (readonly [Kind, RegExp])[] = [
  ['image', /\.(?:avif|gif|jpe?g|png|svg|webp)$/i],
  ['video', /\.(?:m4v|mkv|mov|mp4|webm)$/i],
  ['audio', /\.(?:aac|flac|m4a|mp3|oga|ogg|opus|wav)$/i],
]
const kindPattern = /(?:^|_)(image|video|audio)s?(?:_|$)/
/** Models nest links in a list of objects; deeper links are parameters rather than results. */
const maxLevels = 4
/** Bounds the reading of an output with many values other than links. */
const maxValues = 10_000

export type FoundMedia = Pick<Report, 'media' | 'isInline' | 'files' | 'output'>

/**
 * Returns the media in the output of a model, whose shape only the model knows: links in strings, lists and the members
 * of objects. The kind of a link comes from its `content_type`, then from its file name, then from the name of its
 * member. Other links are omitted. An output without links may have `data:` URIs, which need an archive that keeps
 * them. Returns a reason for parking where nothing is found, and for more than `maxOutputItems`.
 */
export function mediaIn(
  output: unknown,
  archive: FilesPlace | undefined,
): FoundMedia | 'inline_media' | 'unknown_shape' {
  const media: MediaItem[] = []
  const inline: Inline[] = []
  const counts = { image: 0, video: 0, audio: 0 }
  const isRead = readTexts(output, (url, { content_type, width, height, duration }, named) => {
    const described = { url, width, height, duration_seconds: duration }
    if (mediaUriPattern.test(url)) inline.push(described)
    const kind = isLink(url) ? (asKind(content_type?.split('/', 1)[0]) ?? kindOfName(url) ?? named) : undefined
    if (kind !== undefined) media.push({ kind, position: counts[kind]++, ...described })
  })
  const items = media.length > 0 ? media : inline
  if (!isRead || items.length === 0 || items.length > maxOutputItems) return 'unknown_shape'
  return media.length > 0 ? { media, output: outputOf(media) } : (inlineMedia(inline, archive) ?? 'inline_media')
}

type Inline = Omit<MediaItem, 'kind' | 'position'>

/** Gives media in base64 their links in the archive. Undefined if no archive would keep all of them. */
function inlineMedia(inline: readonly Inline[], archive: FilesPlace | undefined): FoundMedia | undefined {
  if (archive === undefined) return undefined
  const counts = { image: 0, video: 0, audio: 0 }
  const media: MediaItem[] = []
  const files: InlineFile[] = []
  for (const { url: uri, ...described } of inline) {
    const file = fileInUri(uri)
    if (file === undefined) return undefined
    const { kind, sha256 } = file
    media.push({ kind, position: counts[kind]++, ...described, url: linkInArchive(archive, file) })
    files.push({ sha256, uri })
  }
  return { media, isInline: true, files, output: outputOf(media) }
}

function readTexts(
  output: unknown,
  add: (text: string, file: Partial<File>, named: Kind | undefined) => void,
): boolean {
  let left = maxValues
  const read = (value: unknown, named: Kind | undefined, depth: number): void => {
    if (--left < 0 || depth > maxLevels) return
    if (typeof value === 'string') return add(value, {}, named)
    if (typeof value !== 'object' || value === null) return
    if (Array.isArray(value)) {
      for (const item of value.slice(0, maxValues)) read(item, named, depth + 1)
    } else if ('url' in value && typeof value.url === 'string') {
      add(value.url, fileSchema.parse(value), named)
    } else {
      for (const [name, inner] of Object.entries(value))
        read(inner, asKind(kindPattern.exec(name)?.[1]) ?? named, depth + 1)
    }
  }
  read(output, undefined, 0)
  return left >= 0
}

/** Media of one kind from a list of links. Returns undefined where a value is no link, or where there are too many. */
export function mediaOf(kind: Kind, links: readonly unknown[]): MediaItem[] | undefined {
  if (links.length > maxOutputItems) return undefined
  const media = links.flatMap((url, position) =>
    typeof url === 'string' && isLink(url) ? [{ kind, position, url }] : [],
  )
  return media.length === links.length ? media : undefined
}

/** Returns the output in the shape of the default source (spec, Output shapes): `images`, `video` and `audio`. */
export function outputOf(media: readonly MediaItem[]): Record<string, unknown> {
  const items = (wanted: Kind) =>
    media.filter(({ kind }) => kind === wanted).map(({ kind: _kind, position: _position, ...item }) => item)
  const [images, videos, audios] = [items('image'), items('video'), items('audio')]
  return {
    ...(images.length > 0 && { images }),
    ...(videos.length > 0 && { video: videos.length === 1 ? videos[0] : videos }),
    ...(audios.length > 0 && { audio: audios.length === 1 ? audios[0] : audios }),
  }
}

/** A link of HTTP that the columns can hold. A data URI is no link. */
function isLink(text: string): boolean {
  return /^https?:\/\//i.test(text) && urlSchema.safeParse(text).success && URL.canParse(text)
}

function kindOfName(url: string): Kind | undefined {
  const { pathname } = new URL(url)
  return extensions.find(([, pattern]) => pattern.test(pathname))?.[0]
}

function asKind(text: string | undefined): Kind | undefined {
  return text === 'image' || text === 'video' || text === 'audio' ? text : undefined
}
