import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'

/** The bounds of one run. The kernel enforces memory and CPU time, and forbids writing files. */
export type Limits = { memoryBytes: number; cpuSeconds: number; wallSeconds: number; outputBytes: number }

export type ContainedRun = {
  /** An absolute path: the child has no PATH. */
  program: string
  args: readonly string[]
  /** Open descriptors that the child gets as 3, 4 and so on. */
  descriptors?: readonly number[]
  limits: Limits
  /**
   * `address space` counts every mapping. `data` counts writable memory alone, for programs such as Node that
   * reserve far more addresses than they use.
   */
  memoryLimit: 'address space' | 'data'
  /** Runs the child as another user if this process is root. The program must be readable for every user. */
  ownUser: boolean
  /** Receives the output in order; the child waits while this is pending. */
  write: (chunk: Buffer) => void | Promise<void>
  signal: AbortSignal
}

export type ContainedEnd =
  | { kind: 'ended'; code: number | null; stderr: string }
  | { kind: 'stopped'; why: string }
  | { kind: 'not started'; why: string }

const isRoot = process.getuid?.() === 0
/** systemd and Debian assign no account or range to this number. Containers map ids below 65536. */
const containedUser = 61_000
/** ffmpeg writes a few lines about a broken file, so more output is a fault. */
const maxStderrBytes = 1_048_576
/** macOS enforces neither memory limit, and its shell refuses to set the first. */
const toleratesNoMemoryLimit = process.platform === 'darwin'

/**
 * Runs a program over untrusted data within `limits`. The program has no environment or terminal, cannot write files,
 * and has a low priority. Where the system allows namespaces (findIsolation), it has no network and cannot inspect this
 * process. When this returns or throws, the child has ended and its process group is killed. Throws the reason of
 * `signal`, and what `write` throws.
 */
export async function runContained(run: ContainedRun): Promise<ContainedEnd> {
  run.signal.throwIfAborted()
  const namespaces = await (isolation ??= findIsolation())
  const child = start(run, namespaces)
  const exited = new Promise<number | null | Error>((resolve) => {
    child.once('error', resolve).once('exit', resolve)
  })
  let stopped: string | undefined
  const stop = (why: string) => {
    stopped ??= why
    killGroup(child)
  }
  const abort = () => stop('aborted')
  run.signal.addEventListener('abort', abort, { once: true })
  const { wallSeconds, outputBytes } = run.limits
  const deadline = setTimeout(stop, wallSeconds * 1000, `it did not finish within ${wallSeconds} s`)
  try {
    const stderr = keepTail(child.stderr!, () => stop(`it wrote more than ${maxStderrBytes} bytes of errors`))
    let bytes = 0
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > outputBytes) stop(`it wrote more than ${outputBytes} bytes`)
      if (stopped !== undefined) break
      await run.write(chunk)
    }
    const end = await exited
    run.signal.throwIfAborted()
    if (end instanceof Error) return { kind: 'not started', why: end.message }
    return stopped === undefined ? { kind: 'ended', code: end, stderr: stderr() } : { kind: 'stopped', why: stopped }
  } finally {
    clearTimeout(deadline)
    run.signal.removeEventListener('abort', abort)
    killGroup(child)
    await exited
  }
}

/**
 * Gives acknowledging and landing priority, but leaves the child a quarter of a core that it shares with a busy
 * process. With autogroups, Linux compares whole sessions first, so the script lowers the priority of the session too.
 */
const niceness = 5

/**
 * Sets the limits, then becomes the program. If the machine runs out of memory, the kernel kills the program before
 * other processes. `env -i` comes last, because some shells export variables.
 */
const script = (memoryLimit: ContainedRun['memoryLimit']) => `
{ echo ${niceness} > /proc/self/autogroup; echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
ulimit -c 0 && ulimit -f 0 && ulimit -t "$1" || exit 126
ulimit ${memoryLimit === 'data' ? '-d' : '-v'} "$2" 2>/dev/null || ${toleratesNoMemoryLimit ? ':' : 'exit 126'}
shift 2
exec env -i nice -n ${niceness} "$@"`

function start(
  { program, args, descriptors = [], limits, memoryLimit, ownUser }: ContainedRun,
  namespaces: Isolation,
): ChildProcess {
  const bounds = [String(limits.cpuSeconds), String(Math.floor(limits.memoryBytes / 1024))]
  const user = ownUser && namespaces.otherUser ? { uid: containedUser, gid: containedUser } : {}
  return spawn('/bin/sh', ['-c', script(memoryLimit), 'sh', ...bounds, ...namespaces.prefix, program, ...args], {
    cwd: '/',
    env: {},
    // A separate process group can be killed as a whole.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', ...descriptors],
    ...user,
  })
}

type Isolation = { otherUser: boolean; prefix: readonly string[] }

/**
 * The user namespace keeps a process of the same user from reading our memory and environment. The empty network
 * namespace has no route, not even to loopback.
 */
const newNamespaces = ['unshare', '--user', '--net', '--']

let isolation: Promise<Isolation> | undefined

/**
 * Tries once which isolation this system supports. Containers and hardened kernels may forbid namespaces, and macOS has
 * none.
 */
async function findIsolation(): Promise<Isolation> {
  const otherUser = isRoot && (await succeeds({ otherUser: true, prefix: [] }))
  const prefix = (await succeeds({ otherUser, prefix: newNamespaces })) ? newNamespaces : []
  return { otherUser, prefix }
}

async function succeeds(tried: Isolation): Promise<boolean> {
  const limits = { memoryBytes: 268_435_456, cpuSeconds: 5, wallSeconds: 5, outputBytes: 0 }
  const { signal } = new AbortController()
  const child = start(
    { program: 'true', args: [], limits, memoryLimit: 'data', ownUser: true, write: () => {}, signal },
    tried,
  )
  child.stdout?.resume()
  child.stderr?.resume()
  const [code] = await once(child, 'exit').catch(() => [null])
  return code === 0
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // The whole group has already ended.
  }
}

function keepTail(stderr: Readable, onTooMuch: () => void): () => string {
  let tail = ''
  let bytes = 0
  stderr.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > maxStderrBytes) onTooMuch()
    tail = (tail + chunk.toString('latin1')).slice(-4096)
  })
  return () => tail
}
