import fs from 'node:fs/promises'
import path from 'node:path'
import type { Output } from '../../wire/schemas.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'
import type { EngineJob } from './engine.ts'
import { storeMedia, type MediaExtension } from './media-store.ts'

/** The packaged sample media, made by the local engines, with their sizes and durations. */
const sampleImages = ['image-0', 'image-1', 'image-2', 'image-3'] as const
const sampleImageSize = { width: 1024, height: 1024 }
const sampleVideo = { width: 854, height: 480, duration: 4 }
const sampleAudio = { duration: 5 }

const samplesDir = path.join(import.meta.dirname, 'samples')

export type SandboxPlace = Pick<EngineJob, 'mediaDir' | 'mediaUrl' | 'input'>

/**
 * The canned result of a sandbox key (spec, Authentication, 6): the same sample for every input, or the ordered number
 * of different samples. Copies missing files into the media folder.
 */
export async function sandboxOutput(
  { type, name }: Pick<EngineChoice, 'type' | 'name'>,
  place: SandboxPlace,
): Promise<Output> {
  switch (type) {
    case 'image': {
      const withOriginal = name === 'local-image-with-original'
      const samples = sampleImages.slice(0, imageCount(place))
      return { images: await Promise.all(samples.map((sample) => sampleImage(place, sample, withOriginal))) }
    }
    case 'video':
      return { video: { url: await storeSample(place, 'video', 'mp4'), ...sampleVideo } }
    case 'audio':
      return { audio: { url: await storeSample(place, 'audio', 'mp3'), ...sampleAudio } }
  }
}

async function sampleImage(place: SandboxPlace, name: (typeof sampleImages)[number], withOriginal: boolean) {
  const url = await storeSample(place, name, 'webp')
  // The sample is also its own original, because clients only test that the field exists.
  return { url, ...sampleImageSize, ...(withOriginal ? { original_url: url } : {}) }
}

function imageCount({ input }: SandboxPlace): number {
  const count = input['num_images']
  return typeof count === 'number' ? Math.min(Math.max(1, Math.trunc(count)), sampleImages.length) : 1
}

async function storeSample(
  { mediaDir, mediaUrl }: Pick<SandboxPlace, 'mediaDir' | 'mediaUrl'>,
  name: string,
  extension: MediaExtension,
): Promise<string> {
  const bytes = await fs.readFile(path.join(samplesDir, `${name}.${extension}`))
  return storeMedia({ mediaDir, mediaUrl, requestId: 'sandbox' }, `sample-${name}`, extension, bytes)
}
