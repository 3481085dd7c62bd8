import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { childEnv } from '../support/child-env.ts'
import { liveKey, sandboxKey } from '../support/receiver.ts'

export type Ended = { code: number | null; stdout: string; stderr: string }

const cli = path.resolve(import.meta.dirname, '../../src/cli.ts')

/** Runs `mediadock …` as a process of its own, with these settings and no others. */
export async function mediadock(env: Record<string, string>, ...args: string[]): Promise<Ended> {
  const keys = JSON.stringify([liveKey, sandboxKey])
  const settings = { ...childEnv, GENERATION_KEYS: keys, GENERATION_API_URL: 'http://127.0.0.1:9', ...env }
  const child = spawn(process.execPath, [cli, ...args], { env: settings, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: child.exitCode, stdout, stderr }
}

/** What --json printed. */
export function linesOf(stdout: string) {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
}
