import { decode, readerOf, type Ffmpeg } from '../../platform/ffmpeg.ts'

/**
 * One frame takes about a second. The limits leave room within the ten minutes of a copy, with eight copies waiting.
 */
const bounds = { cpuSeconds: 20, wallSeconds: 60 }

type PosterOptions = {
  ffmpeg: Ffmpeg
  path: string
  contentType: string
  maxPixels: number
  edgePixels: number
  signal: AbortSignal
}

/** An image without encoding: three bytes per pixel, row by row. */
type Frame = { width: number; height: number; pixels: Buffer }
type MadePoster = { kind: 'made'; frame: Frame } | { kind: 'none'; why: string }

/** Decodes the first frame of a video, scaled to fit into a square. Throws only the reason of `signal`. */
export async function posterOf({
  ffmpeg,
  path,
  contentType,
  maxPixels,
  edgePixels,
  signal,
}: PosterOptions): Promise<MadePoster> {
  const reader = readerOf(contentType)
  if (reader === undefined) return { kind: 'none', why: `no posters are made of ${contentType}` }
  const scale = `scale=w='min(${edgePixels},iw)':h='min(${edgePixels},ih)':force_original_aspect_ratio=decrease`
  const chunks: Buffer[] = []
  try {
    const decoded = await decode(ffmpeg, {
      inputs: [{ path, reader }],
      // PPM is the size as text and the pixels, so that no image decoder reads output shaped by a foreign file.
      args: ['-map', '0:v:0', '-frames:v', '1', '-vf', scale, '-c:v', 'ppm', '-f', 'image2pipe'],
      write: (chunk) => void chunks.push(chunk),
      maxOutputBytes: 3 * edgePixels * edgePixels + 32,
      maxPixels,
      ...bounds,
      signal,
    })
    if (decoded.kind === 'failed') return { kind: 'none', why: `ffmpeg: ${decoded.why.slice(0, 200)}` }
  } catch (error) {
    signal.throwIfAborted()
    return { kind: 'none', why: error instanceof Error ? error.message.slice(0, 200) : 'ffmpeg cannot be run' }
  }
  const frame = readPpm(Buffer.concat(chunks))
  return frame === undefined ? { kind: 'none', why: 'ffmpeg found no frame' } : { kind: 'made', frame }
}

function readPpm(bytes: Buffer): Frame | undefined {
  const [header, width, height] = /^P6\n(\d+) (\d+)\n255\n/.exec(bytes.toString('latin1', 0, 32)) ?? []
  if (header === undefined) return undefined
  const frame = { width: Number(width), height: Number(height), pixels: bytes.subarray(header.length) }
  return frame.pixels.length === 3 * frame.width * frame.height ? frame : undefined
}
