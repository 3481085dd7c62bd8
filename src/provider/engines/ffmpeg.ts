import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { isExecutable } from '../../platform/ffmpeg.ts'
import { EngineError } from './engine.ts'

const require = createRequire(import.meta.url)

export type FfmpegRun = {
  binary: string
  args: readonly string[]
  signal: AbortSignal
  deadlineSeconds: number
  /** Called with the number of frames encoded so far. */
  onFrames?: (frames: number) => Promise<void>
}

/**
 * Runs ffmpeg to its end. Kills it if `signal` aborts, the deadline passes or `onFrames` throws. The process has ended
 * when this returns.
 */
export async function runFfmpeg({ binary, args, signal, deadlineSeconds, onFrames }: FfmpegRun): Promise<void> {
  signal.throwIfAborted()
  const flags = ['-hide_banner', '-nostdin', '-loglevel', 'error', '-progress', 'pipe:1', '-y']
  const child = spawn(binary, [...flags, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  const closed = once(child, 'close').catch((cause) => {
    throw new EngineError('ffmpeg cannot be started on the server; video and mp3 need it', { cause })
  })
  const stderr = collectTail(child.stderr)
  const deadline = AbortSignal.timeout(deadlineSeconds * 1000)
  const stop = AbortSignal.any([signal, deadline])
  const kill = () => child.kill('SIGKILL')
  stop.addEventListener('abort', kill)
  try {
    const [[code]] = await Promise.all([closed, followProgress(child.stdout, onFrames)])
    signal.throwIfAborted()
    if (deadline.aborted) throw new EngineError(`the encoder did not finish within ${deadlineSeconds} s`)
    if (code !== 0)
      throw new EngineError('the encoder failed', { cause: new Error(`ffmpeg ended with ${code}: ${stderr()}`) })
  } finally {
    stop.removeEventListener('abort', kill)
    kill()
    await closed.catch(() => {})
  }
}

async function followProgress(stdout: Readable, onFrames: FfmpegRun['onFrames']): Promise<void> {
  for await (const line of createInterface({ input: stdout })) {
    const [, frames] = /^frame=\s*(\d+)$/.exec(line) ?? []
    if (frames !== undefined) await onFrames?.(Number(frames))
  }
}

function collectTail(stderr: Readable): () => string {
  let tail = ''
  stderr.setEncoding('utf8').on('data', (chunk: string) => {
    tail = (tail + chunk).slice(-4096)
  })
  return () => tail
}

/** Finds the configured or the packaged ffmpeg. Throws an EngineError if there is none. */
export async function locateFfmpeg(given: string | undefined): Promise<string> {
  const binary = given ?? installedFfmpeg()
  if (!(await isExecutable(binary)))
    throw new EngineError('there is no ffmpeg that can be run on the server; video and mp3 need it')
  return binary
}

function installedFfmpeg(): string {
  try {
    const { path }: { path: string } = require('@ffmpeg-installer/ffmpeg')
    return path
  } catch (cause) {
    throw new EngineError(`there is no ffmpeg for ${process.platform}-${process.arch}; video and mp3 need it`, {
      cause,
    })
  }
}
