import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import { readBrief } from './brief.ts'
import type { Engine } from './engine.ts'
import { locateFfmpeg, runFfmpeg } from './ffmpeg.ts'
import { storeMedia, withScratch } from './media-store.ts'
import { composeMusic, encodeWav } from './music.ts'

/** Creates the engine that composes music for the prompt, as WAV or MP3. */
export function createLocalAudioEngine(ffmpegPath?: string): Engine {
  return async (job, report, signal) => {
    const { seed, duration, output_format: format } = readBrief(job)
    // Checked before the work, so that a server without ffmpeg fails at once.
    const binary = format === 'mp3' ? await locateFfmpeg(ffmpegPath) : undefined
    await report(0, `composing ${duration} s`)
    const wav = encodeWav(await composeMusic({ seed, seconds: duration, signal }))
    await report(80, 'the piece is composed')

    const toMp3 = async (scratch: string) => {
      const [wavFile, mp3File] = [path.join(scratch, 'sound.wav'), path.join(scratch, 'sound.mp3')]
      await fs.writeFile(wavFile, wav)
      const options = words('-c:a libmp3lame -b:a 128k -map_metadata -1 -fflags +bitexact -flags:a +bitexact')
      await runFfmpeg({ binary: binary ?? '', args: ['-i', wavFile, ...options, mp3File], signal, deadlineSeconds: 60 })
      return storeMedia(job, 'audio', 'mp3', await fs.readFile(mp3File))
    }
    const url = binary === undefined ? await storeMedia(job, 'audio', 'wav', wav) : await withScratch(job, toMp3)
    await report(100, 'the sound file is written')
    return { audio: { url, duration } }
  }
}
