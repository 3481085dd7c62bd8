#!/usr/bin/env node
// The command, in plain JavaScript: whichever Node is on the machine can read this file.
// The program itself is TypeScript, which Node runs from 22.18 on; an older one hands
// over to the Node that comes with the packages, and passes signals on to it.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const root = path.resolve(import.meta.dirname ?? path.dirname(fs.realpathSync(process.argv[1] ?? '')), '..')
const program = path.join(root, 'src/cli.ts')

if (process.features.typescript) await import(program)
else handOver()

function handOver() {
  const nodes = [path.join(root, 'node_modules/.bin/node'), path.join(root, '../.bin/node')]
  const node = nodes.find((file) => fs.existsSync(file))
  if (node === undefined) {
    process.stderr.write(`mediadock: needs Node 22.18 or newer, this is ${process.version}; npm ci brings one along where optional packages are installed\n`)
    process.exit(1)
  }
  // Over the fourth channel it notices when this process is killed, and stops.
  const child = spawn(node, [program, ...process.argv.slice(2)], { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    // A terminal sends its signals to both; asked once more within the same moment is the same wish.
    process.on(signal, () => child.kill(signal))
  }
  child.on('error', (error) => {
    process.stderr.write(`mediadock: ${node} cannot be started: ${error.message}\n`)
    process.exit(1)
  })
  child.on('exit', (code, signal) => process.exit(code ?? 128 + (os.constants.signals[signal ?? 'SIGKILL'] ?? 9)))
}
