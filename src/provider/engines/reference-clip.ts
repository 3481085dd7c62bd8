import fs from 'node:fs/promises'
import path from 'node:path'
import { words } from '../../platform/ffmpeg.ts'
import type { Reference } from './engine.ts'
import type { MediaReader } from './foreign-media.ts'
import type { FrameSize } from './frame-size.ts'
import { createRandom, type Random } from './random.ts'
import { fitPicture } from './reference-picture.ts'
import { framesPerSecond } from './video-graph.ts'

/** Enlarges pictures relative to the frame, so that the slow zoom does not jump between pixels. */
const pictureScale = 2

export type ShotsJob = {
  references: readonly Reference[]
  size: FrameSize
  durationSeconds: number
  /** Decides where each shot moves to. */
  seed: string
  /** Folder for the shots' files. */
  scratch: string
  media: MediaReader
  signal: AbortSignal
}

/** ffmpeg's arguments for the inputs of a clip, and the filter graph that produces `[film]`. */
export type Shots = { inputs: string[][]; graph: string[] }

/**
 * Cuts a clip of references, each for an equal share of the time. A shot zooms into its picture. A video plays; if it
 * is too short, the shot zooms into its last frame.
 */
export async function shootReferences({
  references,
  size,
  durationSeconds,
  seed,
  scratch,
  media,
  signal,
}: ShotsJob): Promise<Shots> {
  const random = createRandom(`${seed}:shots`)
  const total = Math.round(durationSeconds * framesPerSecond)
  const inputs: string[][] = []
  const graph: string[] = []
  for (const [at, reference] of references.entries()) {
    const frames = Math.floor((total * (at + 1)) / references.length) - Math.floor((total * at) / references.length)
    const file = path.join(scratch, `reference-${at}`)
    let given = 1
    if (reference.kind === 'video') {
      given = await media.readFrames(reference, { size, frames, to: file }, signal)
      inputs.push([
        ...words(`-f rawvideo -pix_fmt yuv420p -s ${size.width}x${size.height} -framerate ${framesPerSecond} -i`),
        file,
      ])
    } else {
      const larger = { width: size.width * pictureScale, height: size.height * pictureScale }
      await fs.writeFile(file, await fitPicture(reference, larger))
      inputs.push([...words(`-f image2 -c:v png -framerate ${framesPerSecond} -i`), file])
    }
    graph.push(`[${at}:v]${shotFilter({ size, given, frames, random })}[film${at}]`)
  }
  graph.push(`${references.map((_, at) => `[film${at}]`).join('')}concat=n=${references.length}[film]`)
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
