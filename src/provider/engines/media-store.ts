import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import type { EngineJob } from './engine.ts'

export type MediaExtension = 'png' | 'webp' | 'jpg' | 'mp4' | 'mp3' | 'wav'

type Place = Pick<EngineJob, 'mediaDir' | 'mediaUrl' | 'requestId'>

const scratchPrefix = '.scratch-'

const folderName = /^[0-9a-z-]{1,64}$/

/**
 * Puts one finished file under `<mediaDir>/<requestId>/` and answers its link.
 * The name ends in a digest of the content, so a link always means the same
 * bytes, and a job that runs twice never changes a file that somebody has.
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
  if (await exists(path.join(folder, file))) return link

  // Renamed into place when whole: a link never shows half a file.
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
 * Where our own listener serves the media folder: below its origin where {media_url} says so, else for a proxy in
 * front.
 */
export function mediaPath({ baseUrl, mediaUrl }: Pick<MediaHost, 'baseUrl' | 'mediaUrl'>): string {
  const own = mediaUrl.startsWith(`${baseUrl}/`) ? mediaUrl.slice(baseUrl.length) : '/media'
  return own.startsWith('/v1') ? '/media' : own
}

const fileBelowMedia = /^[0-9a-z-]{1,64}\/[0-9a-z-]{1,128}\.(?:png|webp|jpg|mp4|mp3|wav)$/

/**
 * The file that a link to our own media host stands for. Undefined for a link to another host, null for one that no
 * file can have.
 */
export function mediaFileOf(link: URL, host: MediaHost): string | null | undefined {
  for (const root of [host.mediaUrl, `${host.baseUrl}${mediaPath(host)}`].map((text) => new URL(text))) {
    const folder = `${root.pathname.replace(/\/+$/, '')}/`
    if (link.origin !== root.origin || !link.pathname.startsWith(folder)) continue
    const name = link.pathname.slice(folder.length)
    return fileBelowMedia.test(name) ? path.join(path.resolve(host.mediaDir), name) : null
  }
  return undefined
}

/** Runs `work` with a private scratch folder, which is gone afterwards whatever happens. */
export async function withScratch<T>(place: Place, work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mediaFolder(place)
  await removeLeftovers(folder)
  // Beside the result, since the system's own temporary folder may be small; hidden, so never served.
  const scratch = await fs.mkdtemp(path.join(folder, scratchPrefix))
  try {
    return await work(scratch)
  } finally {
    await fs.rm(scratch, { recursive: true, force: true })
  }
}

/** What a worker that died in the middle of this request has left. */
async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    if (name.startsWith(scratchPrefix)) await fs.rm(path.join(folder, name), { recursive: true, force: true })
  }
}

async function mediaFolder({ mediaDir, requestId }: Place): Promise<string> {
  if (!folderName.test(requestId))
    throw new Error(`not a request id that can name a folder: ${JSON.stringify(requestId)}`)
  const folder = path.join(path.resolve(mediaDir), requestId)
  await fs.mkdir(folder, { recursive: true })
  return folder
}

async function exists(file: string): Promise<boolean> {
  return fs.access(file).then(
    () => true,
    () => false,
  )
}
