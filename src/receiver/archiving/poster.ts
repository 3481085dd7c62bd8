import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'

const require = createRequire(import.meta.url)

const withinMs = 20_000
const maxFrameBytes = 4 * 1024 * 1024
const leastPriority = 19

/**
 * The readers that ffmpeg may use for what a video is by its content. Left to itself it takes playlists too, which
 * name other files and hosts to read.
 */
const readers: Readonly<Record<string, string>> = { 'video/mp4': 'mov', 'video/quicktime': 'mov', 'video/webm': 'matroska' }

export type PosterOptions = { path: string; contentType: string; maxPixels: number; edgePixels: number; signal: AbortSignal }

/** A frame from the beginning of a video, as a small PNG; undefined where there is no ffmpeg, or it finds none. */
export async function posterOf({ path, contentType, maxPixels, edgePixels, signal }: PosterOptions): Promise<Buffer | undefined> {
  const [reader, binary] = [readers[contentType], await findFfmpeg()]
  if (reader === undefined || binary === undefined) return undefined
  const small = `scale=w='min(${edgePixels},iw)':h='min(${edgePixels},ih)':force_original_aspect_ratio=decrease`
  const input = ['-threads', '1', '-max_pixels', String(maxPixels), '-protocol_whitelist', 'file', '-f', reader, '-i', `file:${path}`]
  const output = ['-map', '0:v:0', '-frames:v', '1', '-vf', small, '-c:v', 'png', '-threads', '1', '-f', 'image2pipe', 'pipe:1']
  const child = spawn(binary, ['-hide_banner', '-nostdin', '-loglevel', 'quiet', ...input, ...output], {
    stdio: ['ignore', 'pipe', 'ignore'],
    // What it reads was sent by others: none of our secrets is to be found in it.
    env: {},
  })
  const closed = once(child, 'close').catch(() => [-1])
  const stop = AbortSignal.any([signal, AbortSignal.timeout(withinMs)])
  const kill = () => void child.kill('SIGKILL')
  stop.addEventListener('abort', kill, { once: true })
  try {
    if (stop.aborted) kill()
    lowerPriority(child.pid)
    const chunks: Buffer[] = []
    let bytes = 0
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > maxFrameBytes) return undefined
      chunks.push(chunk)
    }
    const [code] = await closed
    return code === 0 && bytes > 0 ? Buffer.concat(chunks) : undefined
  } finally {
    stop.removeEventListener('abort', kill)
    kill()
    await closed
  }
}

/** Acknowledging and landing come first. */
function lowerPriority(pid: number | undefined): void {
  try {
    if (pid !== undefined) os.setPriority(pid, leastPriority)
  } catch {
    // It has ended already, or the system forbids it.
  }
}

/** The one that comes with the packages, where there is one for this machine. */
async function findFfmpeg(): Promise<string | undefined> {
  try {
    const { path }: { path: string } = require('@ffmpeg-installer/ffmpeg')
    await fs.access(path, fs.constants.X_OK)
    return path
  } catch {
    return undefined
  }
}
