import fs from 'node:fs/promises'
import path from 'node:path'
import type { Output } from '../../wire/schemas.ts'
import { drawCaptionLayer, drawLayers } from './artwork/picture.ts'
import { readBrief, type Brief } from './brief.ts'
import { EngineError, type Engine, type EngineJob, type Report } from './engine.ts'
import { locateFfmpeg, runFfmpeg } from './ffmpeg.ts'
import { videoSize, type FrameSize } from './frame-size.ts'
import { storeMedia, withScratch } from './media-store.ts'
import { composeMusic } from './music.ts'
import { rasterize } from './rasterize.ts'
import { framesPerSecond, layerSize, planShots, videoGraph } from './video-graph.ts'
import { encodeWav } from './wav.ts'

const deadlineSeconds = 180

/** The share of the work that is done when encoding starts, and when it ends. */
const drawnPercent = 25
const encodedPercent = 95

/** Makes an MP4 (H.264, yuv420p, AAC when wanted) of drawn pictures that pan and fade, with the prompt written on it. */
export function createLocalVideoEngine({ name, ffmpegPath }: { name: string; ffmpegPath: string | undefined }): Engine {
  return { name, run: (job, report, signal) => runLocalVideo(job, { ffmpegPath, report, signal }) }
}

type Run = { ffmpegPath: string | undefined; report: Report; signal: AbortSignal }

async function runLocalVideo(job: EngineJob, { ffmpegPath, report, signal }: Run): Promise<Output> {
  const brief = readBrief(job)
  const size = videoSize(brief.aspect_ratio, brief.resolution)
  if (size === undefined) throw new EngineError('this engine has no frame size for that aspect_ratio and resolution')
  const binary = await locateFfmpeg(ffmpegPath)
  const sound = brief.generate_audio ? 'with sound' : 'without sound'
  await report(0, `making ${brief.duration} s of ${size.width}x${size.height} ${sound}`)

  return withScratch(job, async (scratch) => {
    const inputs = await drawInputs({ scratch, brief, size, model: job.model, signal })
    await report(drawnPercent, 'pictures are drawn')
    const clip = path.join(scratch, 'clip.mp4')
    const frames = brief.duration * framesPerSecond
    const onFrames = steps(frames, async (share) => report(Math.round(drawnPercent + (encodedPercent - drawnPercent) * share)))
    await runFfmpeg({ binary, args: [...encoderArgs({ inputs, brief, size }), clip], signal, deadlineSeconds, onFrames })
    const url = await storeMedia(job, 'video', 'mp4', await fs.readFile(clip))
    await report(100, 'the clip is encoded')
    return { video: { url, ...size, duration: brief.duration } }
  })
}

type Inputs = { layers: string[]; sound: string | undefined }
type Drawing = { scratch: string; brief: Brief; size: FrameSize; model: string; signal: AbortSignal }

async function drawInputs({ scratch, brief, size, model, signal }: Drawing): Promise<Inputs> {
  const layers: string[] = []
  const draw = async (svg: string) => {
    const file = path.join(scratch, `layer-${layers.length}.png`)
    // Read once, a moment later, by ffmpeg: small is not worth the time.
    await (await rasterize(svg, signal)).png({ compressionLevel: 1 }).toFile(file)
    layers.push(file)
  }
  for (const index of planShots(brief.duration).keys()) {
    for (const layer of drawLayers(layerSize(size), `${brief.seed}:${index}`)) await draw(layer)
  }
  await draw(drawCaptionLayer(size, { prompt: brief.prompt, credit: `${model}  ${size.width}x${size.height}  ${brief.duration} s` }))

  if (!brief.generate_audio) return { layers, sound: undefined }
  const sound = path.join(scratch, 'sound.wav')
  await fs.writeFile(sound, encodeWav(await composeMusic({ seed: brief.seed, seconds: brief.duration, signal })))
  return { layers, sound }
}

/** Two threads and bit-exact muxing, whatever the machine has: the bytes must not depend on it. */
function encoderArgs({ inputs, brief, size }: { inputs: Inputs; brief: Brief; size: FrameSize }): string[] {
  const { layers, sound } = inputs
  const shots = planShots(brief.duration)
  const rate = String(framesPerSecond)
  return [
    ...layers.flatMap((file) => ['-framerate', rate, '-i', file]),
    ...(sound ? ['-i', sound] : []),
    '-filter_complex',
    videoGraph(size, brief.duration, shots),
    ...words('-map [clip] -c:v libx264 -preset ultrafast -crf 23 -threads 2'),
    ...(sound ? words(`-map ${layers.length}:a -c:a aac -b:a 128k`) : []),
    ...words(`-t ${brief.duration} -map_metadata -1 -fflags +bitexact -flags:v +bitexact -flags:a +bitexact -movflags +faststart`),
  ]
}

const words = (line: string) => line.split(' ')

/** Passes on every tenth of the way once. */
function steps(total: number, reached: (share: number) => Promise<void>): (done: number) => Promise<void> {
  let last = 0
  return async (done) => {
    const tenth = Math.min(10, Math.floor((done / total) * 10))
    if (tenth <= last) return
    last = tenth
    await reached(tenth / 10)
  }
}
