import fs from 'node:fs/promises'
import path from 'node:path'
import type { Output } from '../../wire/schemas.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'
import type { EngineJob } from './engine.ts'
import { storeMedia, type MediaExtension } from './media-store.ts'

/** The packaged sample media, made by the local engines, with their sizes and durations. */
const sampleImages = ['image-0', 'image-1', 'image-2', 'image-3']
const sampleImageSize = { width: 1024, height: 1024 }
const sampleVideo = { width: 854, height: 480, duration: 4 }
const sampleAudio = { duration: 5 }

const samplesDir = path.join(import.meta.dirname, 'samples')

/**
 * The canned result of a sandbox key (spec, Authentication, 6): the same sample for every input, or the ordered number
 * of different samples. Copies missing files into the media folder.
 */
export async function sandboxOutput(
  { type, name }: Pick<EngineChoice, 'type' | 'name'>,
  { mediaDir, mediaUrl, input }: Pick<EngineJob, 'mediaDir' | 'mediaUrl' | 'input'>,
): Promise<Output> {
  const store = async (sample: string, extension: MediaExtension) => {
    const bytes = await fs.readFile(path.join(samplesDir, `${sample}.${extension}`))
    return storeMedia({ mediaDir, mediaUrl, requestId: 'sandbox' }, `sample-${sample}`, extension, bytes)
  }
  switch (type) {
    case 'image': {
      const { num_images: wanted } = input
      const samples = sampleImages.slice(0, typeof wanted === 'number' ? Math.max(1, Math.trunc(wanted)) : 1)
      const images = samples.map(async (sample) => {
        const url = await store(sample, 'webp')
        // The sample is also its own original, because clients only test that the field exists.
        return { url, ...sampleImageSize, ...(name === 'local-image-with-original' && { original_url: url }) }
      })
      return { images: await Promise.all(images) }
    }
    case 'video':
      return { video: { url: await store('video', 'mp4'), ...sampleVideo } }
    case 'audio':
      return { audio: { url: await store('audio', 'mp3'), ...sampleAudio } }
  }
}
