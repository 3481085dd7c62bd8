import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import { drawCaptionLayer, drawVeil } from './artwork/picture.ts'
import { readBrief, type Brief } from './brief.ts'
import type { Engine, EngineJob } from './engine.ts'
import { locateFfmpeg, runFfmpeg } from './ffmpeg.ts'
import { createMediaReader, framesPerSecond, type MediaReader, soundTrack } from './foreign-media.ts'
import { videoSize } from './frame-size.ts'
import { storeMedia, withScratch } from './media-store.ts'
import { composeMusic } from './music.ts'
import { rasterize } from './rasterize.ts'
import { pictureSize } from './reference-picture.ts'
import { isSeen, type Making, overlayFilters, shoot } from './shots.ts'
import { encodeWav } from './wav.ts'

/** Percentage of the work that is done when encoding starts and when it ends. */
const [drawnPercent, encodedPercent] = [25, 95]

/**
 * Creates the engine that makes an MP4 (H.264, yuv420p, optional AAC) of drawn pictures or of the job's references,
 * with the prompt written on it.
 */
export function createLocalVideoEngine(ffmpegPath?: string): Engine {
  const media = createMediaReader(ffmpegPath)
  return async (job, report, signal) => {
    const brief = readBrief(job)
    const binary = await locateFfmpeg(ffmpegPath)
    const size = videoSize(brief, brief.aspect_ratio === 'adaptive' ? await seenSize(job, media, signal) : undefined)
    const sound = brief.generate_audio ? 'with sound' : 'without sound'
    await report(0, `making ${brief.duration} s of ${size.width}x${size.height} ${sound}`)

    return withScratch(job, async (scratch) => {
      const making = { job, brief, size, scratch, media, signal }
      const film = await filmOf(making)
      const track = await soundOf(making)
      await report(drawnPercent, 'pictures are drawn')
      const clip = path.join(scratch, 'clip.mp4')
      const all = brief.duration * framesPerSecond
      const onFrames = async (frames: number) =>
        report(Math.round(drawnPercent + (encodedPercent - drawnPercent) * Math.min(1, frames / all)))
      const args = [...encoderArgs({ film, track, brief }), clip]
      await runFfmpeg({ binary, args, signal, deadlineSeconds: 180, onFrames })
      const url = await storeMedia(job, 'video', 'mp4', await fs.readFile(clip))
      await report(100, 'the clip is encoded')
      return { video: { url, ...size, duration: brief.duration } }
    })
  }
}

/** The size of the first reference that is seen. */
async function seenSize({ references }: EngineJob, media: MediaReader, signal: AbortSignal) {
  const first = references.find(isSeen)
  return first && (first.kind === 'video' ? media.sizeOf(first, signal) : pictureSize(first))
}

/** The encoder's inputs with their options, and the filter graph that produces `[clip]`. */
type Film = { inputs: readonly (readonly string[])[]; graph: string }

/** Shows the shots alone in the first frames. Then the caption fades in, and over references a translucent drawing. */
async function filmOf(making: Making): Promise<Film> {
  const { job, brief, size, scratch, signal } = making
  const { duration, prompt, seed, strength } = brief
  const { inputs, graph } = await shoot(making)
  const caption = { prompt, credit: `${job.model}  ${size.width}x${size.height}  ${duration} s` }
  const overlay = job.references.some(isSeen)
    ? drawVeil(size, seed, { strength, caption })
    : drawCaptionLayer(size, caption)
  const file = path.join(scratch, 'overlay.png')
  // ffmpeg reads the file once, a moment later, so compression is not worth the time.
  await (await rasterize(overlay, signal)).png({ compressionLevel: 1 }).toFile(file)
  return {
    inputs: [...inputs, ['-framerate', String(framesPerSecond), '-i', file]],
    graph: [...graph, ...overlayFilters(inputs.length, duration)].join(';'),
  }
}

/** The reference sounds one after the other, or a piece of music. Undefined if no sound is wanted. */
async function soundOf({ job, brief, scratch, media, signal }: Making): Promise<string | undefined> {
  if (!brief.generate_audio) return undefined
  const sounds: Buffer[] = []
  for (const reference of job.references.filter(({ kind }) => kind === 'audio'))
    sounds.push(await media.readSound(reference, brief.duration, signal))
  const pcm =
    sounds.length > 0
      ? soundTrack(sounds, brief.duration)
      : await composeMusic({ seed: brief.seed, seconds: brief.duration, signal })
  const file = path.join(scratch, 'sound.wav')
  await fs.writeFile(file, encodeWav(pcm))
  return file
}

/** Two threads and bit-exact muxing, so that the bytes do not depend on the machine. */
function encoderArgs({ film, track, brief }: { film: Film; track: string | undefined; brief: Brief }): string[] {
  return [
    ...film.inputs.flat(),
    ...(track ? ['-i', track] : []),
    '-filter_complex',
    film.graph,
    ...words('-map [clip] -c:v libx264 -preset ultrafast -crf 23 -threads 2'),
    ...(track ? words(`-map ${film.inputs.length}:a -c:a aac -b:a 128k`) : []),
    ...words(
      `-t ${brief.duration} -map_metadata -1 -fflags +bitexact -flags:v +bitexact -flags:a +bitexact ` +
        '-movflags +faststart',
    ),
  ]
}
