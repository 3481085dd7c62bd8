import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import { onTestFinished } from 'vitest'
import { eventually } from '../../support/eventually.ts'

export type TestProcess = {
  child: ChildProcess
  pid: number
  /** Everything on stdout and stderr so far. */
  output: () => string
  stdout: () => string
  /** Settles when the output has this in it; fails, with the output, when the process ends before. */
  says: (pattern: RegExp, withinMs?: number) => Promise<RegExpExecArray>
  kill: (signal: NodeJS.Signals) => void
  exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

/** A process that does not outlive its test. */
export function startProcess(command: string, args: readonly string[], options: SpawnOptions = {}): TestProcess {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  let stdout = ''
  child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  // `close`, not `exit`: by then all of the output is here.
  const exit = once(child, 'close').then(() => ({ code: child.exitCode, signal: child.signalCode }))
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await exit
  })
  return {
    child,
    pid: child.pid ?? -1,
    output: () => output,
    stdout: () => stdout,
    says: async (pattern, withinMs = 60_000) => {
      const found = await eventually(() => pattern.exec(output) ?? (hasEnded() ? 'ended' : undefined), withinMs)
      if (found === 'ended') throw new Error(`the process ended before it printed ${pattern}: ${output}`)
      return found
    },
    kill: (signal) => void child.kill(signal),
    exit,
  }
}

/** The ids of all processes that work in a folder; Linux only. */
export async function processesIn(folder: string): Promise<number[]> {
  const real = await fs.realpath(folder)
  const ids = (await fs.readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const places = await Promise.all(ids.map((id) => fs.readlink(`/proc/${id}/cwd`).catch(() => undefined)))
  return ids.filter((_, at) => places[at]?.startsWith(real)).map(Number)
}

/** Kills all processes that work in a folder. Some may end meanwhile. */
export async function killAllIn(folder: string): Promise<void> {
  for (const pid of await processesIn(folder)) if (isAlive(pid)) process.kill(pid, 'SIGKILL')
}

export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
