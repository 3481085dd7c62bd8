import { spawn } from 'node:child_process'
import path from 'node:path'
import manifest from '../package.json' with { type: 'json' }

// `npm run check`: runs every script `check:…` of package.json at once, and prints the output of each that fails.

const root = path.resolve(import.meta.dirname, '..')

async function passes(script: string): Promise<boolean> {
  const child = spawn(process.execPath, ['--run', script], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const output: Buffer[] = []
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => output.push(chunk))
  const code = await new Promise((resolve) => child.once('close', resolve))
  const outcome = code === 0 ? 'passed' : `FAILED\n${Buffer.concat(output).toString()}`
  process.stdout.write(`${script}: ${outcome}\n`)
  return code === 0
}

const scripts = Object.keys(manifest.scripts).filter((name) => name.startsWith('check:'))
const passed = await Promise.all(scripts.map(passes))
if (passed.includes(false)) process.exitCode = 1
