import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import type { Output } from '../../wire/schemas.ts'
import { drawCaptionLayer, drawLayers, drawVeil } from './artwork/picture.ts'
import { readBrief, type Brief } from './brief.ts'
import { EngineError, type Engine, type EngineJob, type Reference, type Report } from './engine.ts'
import { locateFfmpeg, runFfmpeg } from './ffmpeg.ts'
import { createMediaReader, type MediaReader, soundTrack } from './foreign-media.ts'
import { videoSize, type FrameSize } from './frame-size.ts'
import { storeMedia, withScratch } from './media-store.ts'
import { composeMusic } from './music.ts'
import { rasterize } from './rasterize.ts'
import { shootReferences } from './reference-clip.ts'
import { pictureSize } from './reference-picture.ts'
import { captionFilters, framesPerSecond, layerSize, planShots, videoGraph } from './video-graph.ts'
import { sampleRate, encodeWav, wavOf } from './wav.ts'

/** Percentage of the work that is done when encoding starts and when it ends. */
const [drawnPercent, encodedPercent] = [25, 95]

/**
 * Creates the engine that makes an MP4 (H.264, yuv420p, optional AAC) with the prompt written on it: of drawn pictures
 * that pan and fade, or of the job's references.
 */
export function createLocalVideoEngine({ name, ffmpegPath }: { name: string; ffmpegPath: string | undefined }): Engine {
  const media = createMediaReader(ffmpegPath)
  return { name, run: (job, report, signal) => runLocalVideo(job, { ffmpegPath, media, report, signal }) }
}

type Run = { ffmpegPath: string | undefined; media: MediaReader; report: Report; signal: AbortSignal }

async function runLocalVideo(job: EngineJob, { ffmpegPath, media, report, signal }: Run): Promise<Output> {
  const brief = readBrief(job)
  const binary = await locateFfmpeg(ffmpegPath)
  const size = videoSize(brief.aspect_ratio, brief.resolution, await shapeOf(job, brief, media, signal))
  if (size === undefined) throw new EngineError('this engine has no frame size for that aspect_ratio and resolution')
  const sound = brief.generate_audio ? 'with sound' : 'without sound'
  await report(0, `making ${brief.duration} s of ${size.width}x${size.height} ${sound}`)

  return withScratch(job, async (scratch) => {
    const making = { job, brief, size, scratch, media, signal }
    const film = job.references.some(isSeen) ? await filmOfReferences(making) : await drawnFilm(making)
    const track = await soundOf(making)
    await report(drawnPercent, 'pictures are drawn')
    const clip = path.join(scratch, 'clip.mp4')
    const frames = brief.duration * framesPerSecond
    const onFrames = steps(frames, async (share) =>
      report(Math.round(drawnPercent + (encodedPercent - drawnPercent) * share)),
    )
    await runFfmpeg({
      binary,
      args: [...encoderArgs({ film, track, brief }), clip],
      signal,
      deadlineSeconds: 180,
      onFrames,
    })
    const url = await storeMedia(job, 'video', 'mp4', await fs.readFile(clip))
    await report(100, 'the clip is encoded')
    return { video: { url, ...size, duration: brief.duration } }
  })
}

const isSeen = ({ kind }: Reference) => kind !== 'audio'

/** The shape for `adaptive`. */
async function shapeOf(
  { references }: EngineJob,
  { aspect_ratio: ratio }: Brief,
  media: MediaReader,
  signal: AbortSignal,
): Promise<FrameSize | undefined> {
  const first = references.find(isSeen)
  if (ratio !== 'adaptive' || first === undefined) return undefined
  return first.kind === 'video' ? media.sizeOf(first, signal) : pictureSize(first)
}

/** The encoder's inputs with their options, and the filter graph that produces `[clip]`. */
type Film = { inputs: readonly (readonly string[])[]; graph: string }
type Making = {
  job: EngineJob
  brief: Brief
  size: FrameSize
  scratch: string
  media: MediaReader
  signal: AbortSignal
}

async function drawnFilm(making: Making): Promise<Film> {
  const { brief, size } = making
  const inputs: string[][] = []
  const shots = planShots(brief.duration)
  for (const index of shots.keys()) {
    for (const layer of drawLayers(layerSize(size), `${brief.seed}:${index}`)) inputs.push(await drawn(layer, making))
  }
  inputs.push(await drawn(drawCaptionLayer(size, captionOf(making)), making))
  return { inputs, graph: videoGraph(size, brief.duration, shots) }
}

/** Shows the references alone in the first frames. Then the caption and a veil of the drawing fade in. */
async function filmOfReferences(making: Making): Promise<Film> {
  const { job, brief, size } = making
  const references = job.references.filter(isSeen)
  const shots = await shootReferences({ ...making, references, durationSeconds: brief.duration, seed: brief.seed })
  const veil = drawVeil(size, brief.seed, { strength: brief.strength, caption: captionOf(making) })
  const inputs = [...shots.inputs, await drawn(veil, making)]
  return {
    inputs,
    graph: [
      ...shots.graph,
      ...captionFilters({ input: shots.inputs.length, seconds: brief.duration, over: 'film' }),
    ].join(';'),
  }
}

function captionOf({ job, brief, size }: Making) {
  return { prompt: brief.prompt, credit: `${job.model}  ${size.width}x${size.height}  ${brief.duration} s` }
}

async function drawn(svg: string, { scratch, signal }: Making): Promise<string[]> {
  const file = path.join(scratch, `layer-${randomUUID()}.png`)
  // ffmpeg reads the file once, a moment later, so compression is not worth the time.
  await (await rasterize(svg, signal)).png({ compressionLevel: 1 }).toFile(file)
  return ['-framerate', String(framesPerSecond), '-i', file]
}

/** The reference sounds one after the other, or a piece of music. Undefined if no sound is wanted. */
async function soundOf({ job, brief, scratch, media, signal }: Making): Promise<string | undefined> {
  if (!brief.generate_audio) return undefined
  const sounds: Buffer[] = []
  for (const reference of job.references.filter(({ kind }) => kind === 'audio'))
    sounds.push(await media.readSound(reference, brief.duration, signal))
  const wav =
    sounds.length > 0
      ? wavOf(soundTrack(sounds, brief.duration), sampleRate)
      : encodeWav(await composeMusic({ seed: brief.seed, seconds: brief.duration, signal }))
  const file = path.join(scratch, 'sound.wav')
  await fs.writeFile(file, wav)
  return file
}

/** Two threads and bit-exact muxing on every machine, because the bytes must not depend on it. */
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

/** Calls `reached` once for every tenth of the work. */
function steps(total: number, reached: (share: number) => Promise<void>): (done: number) => Promise<void> {
  let last = 0
  return async (done) => {
    const tenth = Math.min(10, Math.floor((done / total) * 10))
    if (tenth <= last) return
    last = tenth
    await reached(tenth / 10)
  }
}
