import type { EngineChoice } from '../domain/engine-choice.ts'
import { httpEngineSchema, openAiImagesSchema } from './engine-settings.ts'
import type { Engine } from './engine.ts'
import { createHttpEngine } from './http-engine.ts'
import { createLocalAudioEngine } from './local-audio.ts'
import { createLocalImageEngine } from './local-image.ts'
import { createLocalVideoEngine } from './local-video.ts'
import { createOpenAiImagesEngine } from './openai-images.ts'

/** The local engines by name. `ffmpegPath` replaces the packaged ffmpeg. */
export function createEngines(ffmpegPath?: string): ReadonlyMap<string, Engine> {
  return new Map([
    ['local-image', createLocalImageEngine({ withOriginal: false })],
    ['local-image-with-original', createLocalImageEngine({ withOriginal: true })],
    ['local-video', createLocalVideoEngine(ffmpegPath)],
    ['local-audio', createLocalAudioEngine(ffmpegPath)],
  ])
}

/** Creates a remote engine with the settings stored with its request. Undefined for an unknown name. */
export function createRemoteEngine(
  { name, type, settings }: EngineChoice,
  token: string | undefined,
): Engine | undefined {
  const { token_env: _variable, token_file: _file, ...rest } = settings
  const given = { ...rest, ...(token !== undefined && { api_key: token }) }
  switch (name) {
    case 'openai-images':
      return createOpenAiImagesEngine(openAiImagesSchema.parse(given))
    case 'http':
      return createHttpEngine(httpEngineSchema.parse(given), type)
    default:
      return undefined
  }
}
