import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import fs, { type FileHandle } from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { runContained, type ContainedEnd, type ContainedRun } from './contained-process.ts'

/** An ffmpeg for foreign files: a program of this machine, or the WebAssembly build of an npm package, run by Node. */
export type Ffmpeg = { kind: 'program' | 'webassembly'; path: string; version: string }

/** The demuxers allowed for foreign files. None of them follows references to other files. */
export type Reader = 'mov' | 'matroska' | 'wav' | 'flac' | 'ogg' | 'mp3' | 'aac'

const readers: Readonly<Record<string, Reader>> = {
  'video/mp4': 'mov',
  'video/quicktime': 'mov',
  'audio/mp4': 'mov',
  'video/webm': 'matroska',
  'audio/wav': 'wav',
  'audio/flac': 'flac',
  'audio/ogg': 'ogg',
  'audio/mpeg': 'mp3',
  'audio/aac': 'aac',
}

/** The demuxer for a media type, or undefined if the type is not decoded. */
export function readerOf(contentType: string): Reader | undefined {
  return readers[contentType]
}

/** The codecs that generators and cameras use. Other decoders are old or rarely tested. */
const decoders =
  'h264,hevc,vp8,vp9,av1,libdav1d,mpeg4,prores,mjpeg,png,' +
  'aac,mp3,mp3float,vorbis,opus,libopus,flac,alac,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s32le,pcm_f32le'

/**
 * A frame of 4K needs up to 500 MB of address space in Debian's ffmpeg. The WebAssembly build is limited to 512 MiB
 * (8192 pages of 64 KiB), and Node needs as much again.
 */
const memoryBytes = { program: 536_870_912, webassembly: 1_073_741_824 }
/** More than a frame of 8K. Thumbnails have the same limit. */
export const maxPixels = 40_000_000
/** The CPU time is the actual limit. The wall time leaves room for other work on a loaded machine. */
const usual = { cpuSeconds: 30, wallSeconds: 120 }

export type Decoding = {
  /** A regular file, and the demuxer that its content requires. */
  path: string
  reader: Reader
  /** Options of the output, including its format: `-f rawvideo`. The output is a pipe. */
  args: readonly string[]
  /** Receives the output in order. ffmpeg waits while this is pending. */
  write: (chunk: Buffer) => void | Promise<void>
  maxOutputBytes: number
  wallSeconds?: number
  cpuSeconds?: number
  signal: AbortSignal
}

export type Decoded = { kind: 'done'; bytes: number } | { kind: 'failed'; why: string }

/**
 * Decodes a foreign file within the bounds of `runContained`. A file that exceeds a limit is `failed`, like a broken
 * one, and its output so far is useless. Throws the reason of `signal`, what `write` throws, and errors of opening the
 * file.
 */
export async function decode(
  ffmpeg: Ffmpeg,
  { path: file, reader, args, signal, ...decoding }: Decoding,
): Promise<Decoded> {
  const { maxOutputBytes: outputBytes, cpuSeconds = usual.cpuSeconds, wallSeconds = usual.wallSeconds } = decoding
  let bytes = 0
  const write = (chunk: Buffer) => {
    bytes += chunk.length
    return decoding.write(chunk)
  }
  const handle = await openFor(ffmpeg, file)
  try {
    const limits = { memoryBytes: memoryBytes[ffmpeg.kind], cpuSeconds, wallSeconds, outputBytes }
    const run = { args: argumentsOf(reader, args), descriptors: [handle.fd], limits, write, signal }
    const end = await runFfmpeg(ffmpeg, run)
    if (end.kind !== 'ended') return { kind: 'failed', why: end.why }
    if (end.code === 0) return { kind: 'done', bytes }
    const why = end.code === null ? 'killed by the system' : end.stderr.trim() || `exit code ${end.code}`
    return { kind: 'failed', why }
  } finally {
    await handle.close()
  }
}

function argumentsOf(reader: Reader, args: readonly string[]): string[] {
  const flags = '-hide_banner -nostdin -loglevel error -filter_threads 1 -filter_complex_threads 1'
  const bounds = `-threads 1 -max_pixels ${maxPixels} -max_streams 16 -codec_whitelist ${decoders}`
  const input = `-protocol_whitelist file -format_whitelist ${reader} -f ${reader} -i file:/dev/fd/3`
  return [...words(`${flags} ${bounds} ${input}`), ...args, ...words('-threads 1 pipe:1')]
}

/** Splits options without spaces in them. */
export const words = (line: string) => line.split(' ')

type Run = Pick<ContainedRun, 'args' | 'descriptors' | 'limits' | 'write' | 'signal'>

function runFfmpeg({ kind, path: file }: Pick<Ffmpeg, 'kind' | 'path'>, run: Run): Promise<ContainedEnd> {
  if (kind === 'program') return runContained({ ...run, program: file, memoryLimit: 'address space', ownUser: true })
  // WebAssembly itself is the sandbox. Another user might be unable to read Node and the package.
  const flags = ['--no-warnings', '--max-old-space-size=64', '--wasm-max-mem-pages=8192']
  const args = [...flags, wasmScript, file, ...run.args]
  return runContained({ ...run, program: process.execPath, args, memoryLimit: 'data', ownUser: false })
}

/** In the same folder, with the same extension as this file. */
const wasmScript = path.join(import.meta.dirname, `ffmpeg-webassembly${path.extname(import.meta.filename)}`)

/**
 * Opens a file for the child. On Linux, a program that reads `/dev/fd/3` opens the file again, so its user must be
 * allowed to read it. For a child of root, this opens an unlinked copy that every user can read.
 */
async function openFor({ kind }: Ffmpeg, file: string): Promise<FileHandle> {
  if (kind === 'webassembly' || process.getuid?.() !== 0) return fs.open(file, constants.O_RDONLY)
  const copy = path.join(os.tmpdir(), `mediadock-${randomUUID()}`)
  try {
    await fs.copyFile(file, copy, constants.COPYFILE_EXCL)
    const handle = await fs.open(copy, constants.O_RDONLY)
    await fs.rm(copy)
    await handle.chmod(0o444)
    return handle
  } finally {
    await fs.rm(copy, { force: true })
  }
}

/**
 * Finds an ffmpeg of version 5 or newer for foreign files. A configured program is the only candidate. Without one, the
 * first usable program on the PATH is taken, else the WebAssembly build. Windows always uses the WebAssembly build.
 */
export async function findFfmpeg(given: string | undefined, signal: AbortSignal): Promise<Ffmpeg | undefined> {
  const programs =
    given === undefined
      ? (process.env['PATH'] ?? '').split(path.delimiter).map((folder) => path.join(folder, 'ffmpeg'))
      : [given]
  for (const program of process.platform === 'win32' ? [] : programs) {
    if (!path.isAbsolute(program) || !(await isExecutable(program))) continue
    const found = await check({ kind: 'program', path: program }, signal)
    if (found !== undefined || given !== undefined) return found
  }
  const wasm = given === undefined || process.platform === 'win32' ? findWasm() : undefined
  return wasm === undefined ? undefined : check({ kind: 'webassembly', path: wasm }, signal)
}

async function check(candidate: Pick<Ffmpeg, 'kind' | 'path'>, signal: AbortSignal): Promise<Ffmpeg | undefined> {
  const limits = { memoryBytes: memoryBytes[candidate.kind], ...usual, outputBytes: 65_536 }
  let about = ''
  const write = (chunk: Buffer) => void (about += chunk.toString('latin1'))
  const end = await runFfmpeg(candidate, { args: ['-version'], limits, write, signal })
  if (end.kind !== 'ended' || end.code !== 0) return undefined
  const [, version] = /^ffmpeg version (\S+)/m.exec(about) ?? []
  const [, avcodecMajor] = /^libavcodec\s+(\d+)\./m.exec(about) ?? []
  // ffmpeg 5 came with libavcodec 59.
  return version !== undefined && Number(avcodecMajor) >= 59 ? { ...candidate, version } : undefined
}

export async function isExecutable(file: string): Promise<boolean> {
  return fs.access(file, constants.X_OK).then(
    () => true,
    () => false,
  )
}

function findWasm(): string | undefined {
  try {
    return createRequire(import.meta.url).resolve('@ffmpeg/core')
  } catch {
    return undefined
  }
}
