import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import { drawPicture } from './artwork/picture.ts'
import type { Brief } from './brief.ts'
import type { EngineJob, Reference } from './engine.ts'
import { framesPerSecond, type MediaReader } from './foreign-media.ts'
import type { FrameSize } from './frame-size.ts'
import { createRandom, type Random } from './random.ts'
import { rasterize } from './rasterize.ts'
import { fitPicture } from './reference-picture.ts'

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

/** ffmpeg's arguments for the inputs of a clip, and the filter graph that produces `[film]`. */
export type Shots = { inputs: string[][]; graph: string[] }

/**
 * Cuts a clip from references, or from drawn pictures if there are none, each for an equal share of the time. A shot
 * zooms into its picture. A video plays; if it is too short, the shot zooms into its last frame.
 */
export async function shoot({ job, brief, size, scratch, media, signal }: Making): Promise<Shots> {
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
      inputs.push([
        ...words(`-f rawvideo -pix_fmt yuv420p -s ${size.width}x${size.height} -framerate ${framesPerSecond} -i`),
        file,
      ])
    } else {
      // Twice the size of the frame, so that the slow zoom does not jump between pixels.
      const larger = { width: size.width * 2, height: size.height * 2 }
      await fs.writeFile(
        file,
        await (reference ? fitPicture(reference, larger) : draw(larger, `${seed}:${at}`, signal)),
      )
      inputs.push([...words(`-f image2 -c:v png -framerate ${framesPerSecond} -i`), file])
    }
    graph.push(`[${at}:v]${shotFilter({ size, given, frames, random })}[film${at}]`)
  }
  graph.push(`${inputs.map((_, at) => `[film${at}]`).join('')}concat=n=${count}[film]`)
  return { inputs, graph }
}

async function draw(size: FrameSize, seed: string, signal: AbortSignal): Promise<Buffer> {
  return (await rasterize(drawPicture(size, seed), signal)).png({ compressionLevel: 1 }).toBuffer()
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
