import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { locateFfmpeg } from '../../../src/provider/engines/ffmpeg.ts'

export type Probed = {
  video: string | undefined
  audio: string | undefined
  width: number
  height: number
  seconds: number
  frames: number
}

/** Decodes a whole media file, so that a broken one fails, and answers what is in it. */
export async function probe(file: string): Promise<Probed> {
  const ffmpeg = await locateFfmpeg(undefined)
  const { stderr } = await promisify(execFile)(ffmpeg, ['-hide_banner', '-xerror', '-i', file, '-f', 'null', '-'])
  const about = stderr.split('Output #0')[0] ?? ''
  const [, hours = 0, minutes = 0, seconds = 0] = /Duration: (\d+):(\d+):([\d.]+)/.exec(about) ?? []
  const video = /Stream .*Video: (.*)/.exec(about)?.[1]
  const [, width = 0, height = 0] = /, (\d{2,})x(\d{2,})/.exec(video ?? '') ?? []
  const frames = [...stderr.matchAll(/frame=\s*(\d+)/g)].at(-1)?.[1] ?? 0
  return {
    video,
    audio: /Stream .*Audio: (.*)/.exec(about)?.[1],
    width: Number(width),
    height: Number(height),
    seconds: Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds),
    frames: Number(frames),
  }
}

/** Runs ffmpeg and answers what it writes to its output. */
export async function ffmpegOutput(args: readonly string[]): Promise<Buffer> {
  const ffmpeg = await locateFfmpeg(undefined)
  const flags = ['-hide_banner', '-nostdin', '-loglevel', 'error']
  const options = { encoding: 'buffer', maxBuffer: 100_000_000 } as const
  return (await promisify(execFile)(ffmpeg, [...flags, ...args, 'pipe:1'], options)).stdout
}

/** The frame of a clip that is shown at a time, as a PNG. */
export async function frameAt(file: string, seconds: number): Promise<Buffer> {
  return ffmpegOutput([
    '-i',
    file,
    '-vf',
    `select=gte(t\\,${seconds - 0.001})`,
    '-frames:v',
    '1',
    '-c:v',
    'png',
    '-f',
    'image2pipe',
  ])
}

/** How strong a tone is in the sound of a file, from 0 to 1: the share of the whole energy (Goertzel). */
export async function toneIn(file: string, hertz: number): Promise<number> {
  const rate = 8000
  const pcm = await ffmpegOutput(['-i', file, '-map', '0:a:0', '-ac', '1', '-ar', String(rate), '-f', 's16le'])
  const samples = Array.from({ length: pcm.length / 2 }, (_, at) => pcm.readInt16LE(at * 2))
  const turn = (2 * Math.PI * hertz) / rate
  let [real, imaginary, energy] = [0, 0, 0]
  for (const [at, sample] of samples.entries()) {
    real += sample * Math.cos(turn * at)
    imaginary += sample * Math.sin(turn * at)
    energy += sample * sample
  }
  return (2 * (real * real + imaginary * imaginary)) / (samples.length * energy)
}
