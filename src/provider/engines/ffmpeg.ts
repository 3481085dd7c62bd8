import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { isExecutable } from '../../platform/ffmpeg.ts'
import { EngineError } from './engine.ts'

const require = createRequire(import.meta.url)
const execute = promisify(execFile)

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
  const run = execute(binary, [...flags, ...args], { timeout: deadlineSeconds * 1000, killSignal: 'SIGKILL' })
  const failed = new AbortController()
  const stop = AbortSignal.any([signal, failed.signal])
  // Not by `execute`, which would return before the process has ended.
  stop.addEventListener('abort', () => run.child.kill('SIGKILL'))
  createInterface({ input: run.child.stdout! }).on('line', (line) => {
    const [, frames] = /^frame=\s*(\d+)$/.exec(line) ?? []
    if (frames !== undefined) onFrames?.(Number(frames)).catch((error: unknown) => failed.abort(error))
  })
  try {
    await run
  } catch (error) {
    stop.throwIfAborted()
    throw failureOf(error, deadlineSeconds)
  }
  stop.throwIfAborted()
}

function failureOf(cause: unknown, deadlineSeconds: number): EngineError {
  const { syscall, code, killed, stderr } = Object(cause)
  if (syscall !== undefined)
    return new EngineError('ffmpeg cannot be started on the server; video and mp3 need it', { cause })
  if (killed && code === null) return new EngineError(`the encoder did not finish within ${deadlineSeconds} s`)
  const words = `ffmpeg ended with ${code}: ${String(stderr).slice(-4096)}`
  return new EngineError('the encoder failed', { cause: new Error(words) })
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
    const message = `there is no ffmpeg for ${process.platform}-${process.arch}; video and mp3 need it`
    throw new EngineError(message, { cause })
  }
}
