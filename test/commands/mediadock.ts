import { AsyncLocalStorage } from 'node:async_hooks'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { runCommand } from '../../src/commands/run.ts'
import { childEnv } from '../support/child-env.ts'
import { liveKey, sandboxKey } from '../support/receiver.ts'

export type Ended = { code: number | null; stdout: string; stderr: string }

const cli = path.resolve(import.meta.dirname, '../../src/cli.ts')
const usual = { GENERATION_KEYS: JSON.stringify([liveKey, sandboxKey]), GENERATION_API_URL: 'http://127.0.0.1:9' }

/** Runs `mediadock …` as a process with only these settings. */
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

/** Runs a command in this process, which is faster. exit.test.ts shows that the process of each command ends. */
export async function mediadockHere(env: Record<string, string>, ...args: string[]): Promise<Ended> {
  const into = { stdout: '', stderr: '' }
  const code = await printed.run(into, () => runCommand(args, { ...usual, ...env }))
  return { code, ...into }
}

/** Parses the output of --json. */
export function linesOf(stdout: string) {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
}
