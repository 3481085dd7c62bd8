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
