import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import { drawCaptionLayer, drawPicture, drawVeil } from './artwork/picture.ts'
import { type Brief, type FrameSize, readBrief, videoSize } from './brief.ts'
import type { Engine, EngineJob, Reference } from './engine.ts'
import { locateFfmpeg, runFfmpeg } from './ffmpeg.ts'
import { createMediaReader, framesPerSecond, type MediaReader, soundTrack } from './foreign-media.ts'
import { storeMedia, withScratch } from './media-store.ts'
import { composeMusic, encodeWav } from './music.ts'
import { createRandom, type Random } from './random.ts'
import { pngOf } from './rasterize.ts'
import { fitPicture, pictureSize } from './reference-picture.ts'

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
  await fs.writeFile(file, await pngOf(overlay, signal))
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

/** A clip to make. */
export type Making = {
  job: EngineJob
  /** Its seed decides what is drawn, and where each shot moves to. */
  brief: Brief
  size: FrameSize
  /** Folder for the clip's files. */
  scratch: string
  media: MediaReader
  signal: AbortSignal
}

export const isSeen = ({ kind }: Reference) => kind !== 'audio'

/**
 * Cuts a clip from references, or from drawn pictures if there are none, each for an equal share of the time. A shot
 * zooms into its picture. A video plays; if it is too short, the shot zooms into its last frame. Returns ffmpeg's
 * arguments for the inputs, and the parts of the filter graph that produces `[film]`.
 */
export async function shoot({ job, brief, size, scratch, media, signal }: Making) {
  const { duration, seed } = brief
  const references = job.references.filter(isSeen)
  const random = createRandom(`${seed}:shots`)
  const total = Math.round(duration * framesPerSecond)
  // A drawn picture is shown for about six seconds.
  const count = references.length || Math.max(1, Math.round(duration / 6))
  const inputs: string[][] = []
  const graph: string[] = []
  for (let at = 0; at < count; at += 1) {
    const frames = Math.floor((total * (at + 1)) / count) - Math.floor((total * at) / count)
    const file = path.join(scratch, `shot-${at}`)
    const reference = references[at]
    let given = 1
    if (reference?.kind === 'video') {
      given = await media.readFrames(reference, { size, frames, to: file }, signal)
      const shape = `-s ${size.width}x${size.height} -framerate ${framesPerSecond}`
      inputs.push([...words(`-f rawvideo -pix_fmt yuv420p ${shape} -i`), file])
    } else {
      // Twice the size of the frame, so that the slow zoom does not jump between pixels.
      const larger = { width: size.width * 2, height: size.height * 2 }
      const drawn = () => pngOf(drawPicture(larger, `${seed}:${at}`), signal)
      await fs.writeFile(file, await (reference ? fitPicture(reference, larger) : drawn()))
      inputs.push([...words(`-f image2 -c:v png -framerate ${framesPerSecond} -i`), file])
    }
    graph.push(`[${at}:v]${shotFilter({ size, given, frames, random })}[film${at}]`)
  }
  graph.push(`${inputs.map((_, at) => `[film${at}]`).join('')}concat=n=${count}[film]`)
  return { inputs, graph }
}

type Shot = { size: FrameSize; given: number; frames: number; random: Random }

/** Shows the given frames, then repeats the last one, zooming in on a point near its middle. */
function shotFilter({ size: { width, height }, given, frames, random }: Shot): string {
  const held = given < frames ? `loop=loop=${frames - given}:size=1:start=${given - 1},` : ''
  const [x, y] = [random.between(0.3, 0.7), random.between(0.3, 0.7)].map((share) => share.toFixed(3))
  // Zoom of a shot from its first to its last frame.
  const zoom = `1+0.12*max(0,on-${given})/${frames}`
  const move = `zoompan=z='${zoom}':x='(iw-iw/zoom)*${x}':y='(ih-ih/zoom)*${y}':d=1:s=${width}x${height}:fps=${framesPerSecond}`
  return `format=yuv420p,${held}setpts=N/${framesPerSecond}/TB,${move},setsar=1`
}

/** Filters that fade the picture of the input number `input` in over `[film]`. Their output is `[clip]`. */
export function overlayFilters(input: number, seconds: number): string[] {
  // One decoded picture, shown again for each frame: reading the file again would cost more than encoding it.
  const hold = `loop=loop=${Math.ceil(seconds * framesPerSecond)}:size=1:start=0,setpts=N/${framesPerSecond}/TB`
  return [
    `[${input}:v]format=yuva420p,${hold},fade=t=in:st=0.2:d=0.8:alpha=1[caption]`,
    '[film][caption]overlay=format=yuv420,format=yuv420p[clip]',
  ]
}
