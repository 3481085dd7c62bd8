import { createHash, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import fs from 'node:fs/promises'
import path from 'node:path'
import type { EngineJob } from './engine.ts'

/** The media that are stored and served, by extension. */
export const mediaTypes = {
  png: 'image/png',
  webp: 'image/webp',
  jpg: 'image/jpeg',
  mp4: 'video/mp4',
  mp3: 'audio/mpeg',
  wav: 'audio/wav',
} as const
export type MediaExtension = keyof typeof mediaTypes

type Place = Pick<EngineJob, 'mediaDir' | 'mediaUrl' | 'requestId'>

const scratchPrefix = '.scratch-'

const folderName = /^[0-9a-z-]{1,64}$/

/**
 * Stores one finished file under `<mediaDir>/<requestId>/` and returns its link. The name ends in a digest of the
 * content. A link therefore always means the same bytes, and a job that runs twice never changes a published file.
 */
export async function storeMedia(
  place: Place,
  name: string,
  extension: MediaExtension,
  bytes: Uint8Array,
): Promise<string> {
  const folder = await mediaFolder(place)
  const file = `${name}-${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}.${extension}`
  const link = `${place.mediaUrl.replace(/\/+$/, '')}/${place.requestId}/${file}`
  // Same name, same bytes: nothing to write.
  if (existsSync(path.join(folder, file))) return link

  // Renamed when complete, so that a link never serves half a file.
  const unfinished = path.join(folder, `.${randomUUID()}.part`)
  try {
    await fs.writeFile(unfinished, bytes)
    await fs.rename(unfinished, path.join(folder, file))
  } finally {
    await fs.rm(unfinished, { force: true })
  }
  return link
}

type MediaHost = { mediaDir: string; mediaUrl: string; baseUrl: string }

/**
 * The path where our listener serves the media folder: that of {media_url} if it lies below {base_url} and outside /v1,
 * else /media, for a proxy.
 */
export function mediaPath({ baseUrl, mediaUrl }: Pick<MediaHost, 'baseUrl' | 'mediaUrl'>): string {
  const own = mediaUrl.startsWith(`${baseUrl}/`) ? mediaUrl.slice(baseUrl.length) : '/media'
  return own.startsWith('/v1') ? '/media' : own
}

const fileBelowMedia = new RegExp(`^[0-9a-z-]{1,64}/[0-9a-z-]{1,128}\\.(?:${Object.keys(mediaTypes).join('|')})$`)

/** The file behind a link to our own media host. Undefined for another host, null for a name that no file can have. */
export function mediaFileOf(link: URL, host: MediaHost): string | null | undefined {
  for (const root of [host.mediaUrl, `${host.baseUrl}${mediaPath(host)}`].map((text) => new URL(text))) {
    const folder = `${root.pathname.replace(/\/+$/, '')}/`
    if (link.origin !== root.origin || !link.pathname.startsWith(folder)) continue
    const name = link.pathname.slice(folder.length)
    return fileBelowMedia.test(name) ? path.join(path.resolve(host.mediaDir), name) : null
  }
  return undefined
}

/** Runs `work` with a private scratch folder and removes the folder afterwards. */
export async function withScratch<T>(place: Place, work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mediaFolder(place)
  // Those that remain are of a worker that died during this request.
  for (const name of await fs.readdir(folder)) {
    if (name.startsWith(scratchPrefix)) await fs.rm(path.join(folder, name), { recursive: true, force: true })
  }
  // In the same file system as the result, because the system's temporary folder may be small. Hidden, so never served.
  const scratch = await fs.mkdtemp(path.join(folder, scratchPrefix))
  try {
    return await work(scratch)
  } finally {
    await fs.rm(scratch, { recursive: true, force: true })
  }
}

async function mediaFolder({ mediaDir, requestId }: Place): Promise<string> {
  if (!folderName.test(requestId))
    throw new Error(`not a request id that can name a folder: ${JSON.stringify(requestId)}`)
  const folder = path.join(path.resolve(mediaDir), requestId)
  await fs.mkdir(folder, { recursive: true })
  return folder
}
