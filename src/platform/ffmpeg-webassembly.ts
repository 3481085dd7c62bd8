import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

/**
 * Runs the WebAssembly build of ffmpeg like the program. The first argument is the package's module, the others are
 * ffmpeg's. Offers descriptor 3 as `/dev/fd/3`, and writes to stdout. ffmpeg can access nothing else of the machine.
 */

type Stream = { node: Node; position: number }
type StreamOperations = {
  read?: (stream: Stream, into: Uint8Array, offset: number, length: number, position: number) => number
  write?: (stream: Stream, from: Uint8Array, offset: number, length: number) => number
}
type Node = { stream_ops: StreamOperations; usedBytes: number }
type FileSystem = {
  mkdir: (path: string) => void
  create: (path: string, mode: number) => Node
  getStream: (descriptor: number) => { stream_ops: StreamOperations } | null
}
type Core = {
  FS: FileSystem
  exec: (...args: string[]) => number
  setLogger: (log: (line: { type: string; message: string }) => void) => void
}
type CreateCore = (module: { wasmBinary: Buffer }) => Promise<Core>

const [, , file = '', ...args] = process.argv

// The package expects a browser's worker, and reads the address of its script.
Object.assign(globalThis, { self: { location: { href: '' } } })
const createCore = createRequire(import.meta.url)(file) as CreateCore
const core = await createCore({ wasmBinary: fs.readFileSync(path.join(path.dirname(file), 'ffmpeg-core.wasm')) })
core.setLogger(({ type, message }) => {
  if (type === 'stderr') writeAll(2, Buffer.from(`${message}\n`))
})
// Without an input, ffmpeg only prints its version.
if (args.includes('file:/dev/fd/3')) offerInput(core.FS)
const stdout = core.FS.getStream(1)
if (stdout === null) throw new Error('the package offers no stdout')
stdout.stream_ops = {
  ...stdout.stream_ops,
  write: (_stream, from, offset, length) => writeAll(1, from.subarray(offset, offset + length)),
}
process.exitCode = core.exec(...args)

/** Offers the input as a file that is read on demand, so that no copy is held in memory. */
function offerInput(files: FileSystem): void {
  files.mkdir('/dev/fd')
  const node = files.create('/dev/fd/3', 0o444)
  Object.defineProperty(node, 'usedBytes', { value: fs.fstatSync(3).size })
  node.stream_ops = {
    ...node.stream_ops,
    read: (_stream, into, offset, length, position) => fs.readSync(3, into, offset, length, position),
  }
}

/** Writes all bytes. ffmpeg waits meanwhile. */
function writeAll(descriptor: number, bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length;) at += fs.writeSync(descriptor, bytes, at)
  return bytes.length
}
