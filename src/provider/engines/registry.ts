import type { EngineSettings } from './engine-settings.ts'
import type { Engine } from './engine.ts'
import { createLocalAudioEngine } from './local-audio.ts'
import { createLocalImageEngine } from './local-image.ts'
import { createLocalVideoEngine } from './local-video.ts'
import { createOpenAiImagesEngine } from './openai-images.ts'

export type EngineOptions = {
  /** PROVIDER_ENGINES as `engineSettingsSchema` gives it; absent: the local engines alone. */
  settings?: EngineSettings | undefined
}

/** Every engine that can run here, by name. */
export function createEngines({ settings }: EngineOptions = {}): ReadonlyMap<string, Engine> {
  const ffmpegPath = settings?.ffmpeg_path
  const engines = [
    createLocalImageEngine({ name: 'local-image', withOriginal: false }),
    createLocalImageEngine({ name: 'local-image-with-original', withOriginal: true }),
    createLocalVideoEngine({ name: 'local-video', ffmpegPath }),
    createLocalAudioEngine({ name: 'local-audio', ffmpegPath }),
    ...(settings?.['openai-images'] ? [createOpenAiImagesEngine(settings['openai-images'])] : []),
  ]
  return new Map(engines.map((engine) => [engine.name, engine]))
}
