import { AsyncLocalStorage } from 'node:async_hooks'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { runCommand } from '../../src/commands/run.ts'
import { childEnv } from '../support/child-env.ts'
import { liveKey, sandboxKey } from '../support/receiver.ts'

export type Ended = { code: number | null; stdout: string; stderr: string }

const cli = path.resolve(import.meta.dirname, '../../src/cli.ts')
const usual = { GENERATION_KEYS: JSON.stringify([liveKey, sandboxKey]), GENERATION_API_URL: 'http://127.0.0.1:9' }

/** Runs `mediadock …` as a process of its own, with these settings and no others. */
export async function mediadock(env: Record<string, string>, ...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [cli, ...args], {
    env: { ...childEnv, ...usual, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: child.exitCode, stdout, stderr }
}

const printed = new AsyncLocalStorage<{ stdout: string; stderr: string }>()

for (const name of ['stdout', 'stderr'] as const) {
  const stream = process[name]
  const write = stream.write.bind(stream)
  stream.write = (chunk: string | Uint8Array, ...more: never[]) => {
    const into = printed.getStore()
    if (into === undefined) return write(chunk, ...more)
    into[name] += String(chunk)
    return true
  }
}

/**
 * The same without a process, for what a command says and does. That it ends, and with which code, only a process
 * shows: of each command one test starts one.
 */
export async function mediadockHere(env: Record<string, string>, ...args: string[]): Promise<Ended> {
  const into = { stdout: '', stderr: '' }
  const code = await printed.run(into, () => runCommand(args, { ...usual, ...env }))
  return { code, ...into }
}

/** Whether there is what gives a command a terminal: `script` of util-linux. */
export const hasTerminals =
  spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout?.includes('util-linux') ?? false

/** The same in a terminal of this many columns: what a person sees, stdout and stderr alike. Words without spaces only. */
export async function mediadockInTerminal(
  env: Record<string, string>,
  columns: number,
  ...args: string[]
): Promise<string> {
  const command = `stty cols ${columns}; exec '${process.execPath}' '${cli}' ${args.join(' ')}`
  const settings = { ...childEnv, ...usual, TERM: 'xterm-256color', ...env }
  const child = spawn('script', ['-qec', command, '/dev/null'], { env: settings, stdio: ['ignore', 'pipe', 'inherit'] })
  const [shown] = await Promise.all([text(child.stdout), once(child, 'exit')])
  return shown.replaceAll('\r\n', '\n')
}

/** What --json printed. */
export function linesOf(stdout: string) {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
}
