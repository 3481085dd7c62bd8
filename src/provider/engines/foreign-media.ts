import fs from 'node:fs/promises'
import { decode, type Decoding, type Ffmpeg, findFfmpeg, maxPixels, readerOf, words } from '../../platform/ffmpeg.ts'
import type { FrameSize } from './brief.ts'
import { EngineError, placeOf, type Reference } from './engine.ts'
import { bytesPerFrame, sampleRate } from './music.ts'
import { undecodable } from './reference-picture.ts'

/** The frame rate of every clip, as in films: the least at which motion looks smooth. */
export const framesPerSecond = 24

/** Five minutes at 60 frames per second. Far more than a clip shows, and quick to count. */
const maxFrames = 18_000
/** ffmpeg lists each packet in a line of at most 70 bytes. */
const maxListingBytes = maxFrames * 100

export type MediaReader = ReturnType<typeof createMediaReader>

/** Decodes foreign videos and sounds in a contained process. `ffmpegPath` replaces the ffmpeg found on the machine. */
export function createMediaReader(ffmpegPath: string | undefined) {
  let found: Ffmpeg | undefined

  const read = async (reference: Reference, decoding: Omit<Decoding, 'path' | 'reader'>): Promise<number> => {
    found ??= await findFfmpeg(ffmpegPath, decoding.signal)
    const missing = 'there is no ffmpeg of version 5 or newer on the server; reference videos and sounds need it'
    if (found === undefined) throw new EngineError(missing)
    const reader = readerOf(reference.contentType)
    if (reader === undefined) throw undecodable(reference, new Error(`no reader for ${reference.contentType}`))
    const end = await decode(found, { ...decoding, path: reference.path, reader })
    if (end.kind === 'failed') throw undecodable(reference, new Error(end.why))
    if (end.bytes === 0) throw undecodable(reference, new Error('it is empty'))
    return end.bytes
  }
  /** Counts frames without decoding, so that a very long video costs little. */
  const boundFrames = async (video: Reference, signal: AbortSignal): Promise<void> => {
    let lines = 0
    const write = (text: Buffer) => {
      for (const byte of text) if (byte === 0x0a) lines += 1
      if (lines > maxFrames) throw new EngineError(`${placeOf(video)} has more than ${maxFrames} frames`)
    }
    await read(video, { args: words('-map 0:v:0 -c copy -f framecrc'), write, maxOutputBytes: maxListingBytes, signal })
  }

  return {
    /** The size of a video as it is shown. */
    sizeOf: async (video: Reference, signal: AbortSignal): Promise<FrameSize> => {
      let head = ''
      const write = (chunk: Buffer) => void (head ||= chunk.toString('latin1', 0, 64))
      const args = words('-map 0:v:0 -frames:v 1 -pix_fmt yuv420p -f yuv4mpegpipe')
      await read(video, { args, write, maxOutputBytes: 2 * maxPixels, signal })
      const [, width, height] = /^YUV4MPEG2 W(\d+) H(\d+)/.exec(head) ?? []
      if (width === undefined || height === undefined) throw undecodable(video, new Error('ffmpeg gave no size'))
      return { width: Number(width), height: Number(height) }
    },
    /**
     * Writes at most `frames` raw frames (yuv420p) to `to`, at our frame rate. Adds black bars if the shapes differ.
     * Returns the number of frames.
     */
    readFrames: async (
      video: Reference,
      { size, frames, to }: { size: FrameSize; frames: number; to: string },
      signal: AbortSignal,
    ): Promise<number> => {
      await boundFrames(video, signal)
      const frameBytes = (size.width * size.height * 3) / 2
      const file = await fs.open(to, 'w')
      try {
        const write = async (chunk: Buffer) => file.writeFile(chunk)
        const args = words(`-map 0:v:0 -vf ${fitFilter(size)} -frames:v ${frames} -pix_fmt yuv420p -f rawvideo`)
        const bounds = {
          maxOutputBytes: frames * frameBytes,
          // The WebAssembly build decodes and scales 30 frames of 1080p per second, so half a minute of video takes
          // about 30 s. Three times that is allowed.
          cpuSeconds: 90,
          wallSeconds: 180,
        }
        return (await read(video, { args, write, signal, ...bounds })) / frameBytes
      } finally {
        await file.close()
      }
    },
    /** Reads the beginning of a sound as 16-bit stereo PCM at `sampleRate`, at most `seconds` long. */
    readSound: async (sound: Reference, seconds: number, signal: AbortSignal): Promise<Buffer> => {
      const chunks: Buffer[] = []
      const write = (chunk: Buffer) => void chunks.push(chunk)
      const args = words(`-map 0:a:0 -t ${seconds} -ac 2 -ar ${sampleRate} -c:a pcm_s16le -f s16le`)
      // One second more than requested, because ffmpeg may end on a whole packet.
      await read(sound, { args, write, maxOutputBytes: (seconds + 1) * sampleRate * bytesPerFrame, signal })
      return Buffer.concat(chunks)
    },
  }
}

/** Joins sounds to a track of this many seconds, repeating them if they are shorter. */
export function soundTrack(sounds: readonly Buffer[], seconds: number): Buffer {
  return Buffer.alloc(Math.round(seconds * sampleRate) * bytesPerFrame, Buffer.concat(sounds))
}

function fitFilter({ width, height }: FrameSize): string {
  const scaled = `scale=${width}:${height}:force_original_aspect_ratio=decrease:force_divisible_by=2`
  return `fps=${framesPerSecond},${scaled},pad=${width}:${height}:(ow-iw)/2:(oh-ih)/2,setsar=1`
}
