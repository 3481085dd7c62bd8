import sharp from 'sharp'
import { z } from 'zod'
import { contentTypeOf } from '../../platform/media-type.ts'
import { readBounded } from '../../platform/outward/answers.ts'
import type { Output } from '../../wire/schemas.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'
import { EngineError, type EngineJob } from './engine.ts'
import { mediaTypes, storeMedia } from './media-store.ts'

/** An answer of a remote engine that breaks the protocol or a limit. The reason is only logged. */
export function unusable(reason: string | Error): EngineError {
  const cause = typeof reason === 'string' ? new Error(reason) : reason
  return new EngineError('the engine gave an answer that cannot be used', { cause })
}

/** An output as a remote engine describes it. The size of a picture and every format come from the bytes. */
export const remoteOutputSchema = z.object({
  url: z.string().optional(),
  base64: z.string().optional(),
  width: z.int().positive().optional(),
  height: z.int().positive().optional(),
  duration: z.number().nonnegative().optional(),
})
export type RemoteOutput = z.infer<typeof remoteOutputSchema>

/** Stores the outputs of a remote engine one after another. Accepts only bytes of the model's type. */
export async function storeRemoteMedia(
  type: EngineChoice['type'],
  job: EngineJob,
  outputs: readonly RemoteOutput[],
  fetchBytes: (output: RemoteOutput) => Promise<Buffer>,
): Promise<Output> {
  const [first, ...others] = outputs
  if (first === undefined) throw unusable('it made nothing')
  if (type === 'image') {
    const images = []
    for (const [at, output] of outputs.entries()) {
      const fetched = await fetchBytes(output)
      const { bytes, format, width, height } = await receivePicture(fetched).catch((error: unknown) => {
        throw error instanceof EngineError ? unusable(error) : error
      })
      images.push({ url: await storeMedia(job, `image-${at}`, format, bytes), width, height })
    }
    return { images }
  }
  if (others.length > 0) throw unusable(`it made more than one ${type}`)
  const { width, height, duration } = first
  if (type === 'audio') {
    const url = await storeClip('audio', job, await fetchBytes(first))
    return { audio: { url, ...(duration !== undefined && { duration }) } }
  }
  if (width === undefined || height === undefined || duration === undefined) {
    throw unusable('it gave no width, height and duration of its video')
  }
  return { video: { url: await storeClip('video', job, await fetchBytes(first)), width, height, duration } }
}

async function storeClip(type: 'video' | 'audio', job: EngineJob, bytes: Buffer): Promise<string> {
  // MP4 has more brands than the platform's table of signatures.
  const isMp4 = bytes.toString('latin1', 4, 8) === 'ftyp'
  const contentType = isMp4 ? mediaTypes.mp4 : contentTypeOf(bytes)
  const accepted = type === 'video' ? (['mp4'] as const) : (['wav', 'mp3'] as const)
  const extension = accepted.find((each) => mediaTypes[each] === contentType)
  if (extension === undefined) throw unusable(`its output is not ${type === 'video' ? 'an MP4' : 'a WAV or MP3'}`)
  return storeMedia(job, type, extension, bytes)
}

const formats = ['png', 'webp', 'jpg'] as const
export type ReceivedPicture = { bytes: Buffer; format: (typeof formats)[number]; width: number; height: number }

/**
 * Accepts bytes from an image service as a complete PNG, WebP or JPEG, detected by content, with its true size. Refuses
 * anything else, especially SVG and HTML, because stored files are served from our host.
 */
export async function receivePicture(bytes: Buffer): Promise<ReceivedPicture> {
  const type = contentTypeOf(bytes)
  const format = formats.find((each) => mediaTypes[each] === type)
  if (format === undefined) throw new EngineError('the image service sent a file that is not a PNG, WebP or JPEG')
  try {
    const picture = sharp(bytes, { limitInputPixels: 67_108_864, failOn: 'truncated' })
    const { autoOrient } = await picture.metadata()
    // The header proves little, so this decodes every row.
    await picture.clone().resize(8, 8).raw().toBuffer()
    return { bytes, format, width: autoOrient.width, height: autoOrient.height }
  } catch (cause) {
    throw new EngineError('the image service answered with a damaged picture', { cause, transient: true })
  }
}

/** The factor from the bytes of outputs to an answer with them: base64 adds a third, and JSON a little. */
export const base64Overhead = 1.4

export type BoundedRequest = {
  url: string
  init: RequestInit
  /** Aborts the whole exchange, including the body. */
  signal: AbortSignal
  maxBytes: number
}

export type BoundedAnswer = { status: number; body: Buffer }

/**
 * Makes one HTTP exchange whose answer takes at most `maxBytes` of memory. Does not follow redirects, which could lead
 * to any host. Failures to connect and incomplete answers are transient EngineErrors.
 */
export async function boundedFetch({ url, init, signal, maxBytes }: BoundedRequest): Promise<BoundedAnswer> {
  try {
    const response = await fetch(url, { ...init, signal, redirect: 'manual' })
    const body = await readBounded(response, maxBytes)
    if (body === undefined) throw new EngineError(`the image service answered with more than ${maxBytes} bytes`)
    return { status: response.status, body }
  } catch (cause) {
    if (cause instanceof EngineError) throw cause
    signal.throwIfAborted()
    throw new EngineError('the image service could not be reached', { cause, transient: true })
  }
}
