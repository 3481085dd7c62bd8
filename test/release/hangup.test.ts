import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { openLaptop } from '../laptop/support/laptop.ts'
import { isAlive, startProcess } from '../platform/support/processes.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

const main = path.resolve(import.meta.dirname, '../../src/main.ts')
const changesNothing = /"level":(?:40|"warn")[^\n]*"msg":"SIGHUP changes nothing/g
const hasScript = await fs.access('/usr/bin/script').then(
  () => true,
  () => false,
)

describe('SIGHUP', () => {
  it('in production of a provider alone changes nothing', async () => {
    const database = await withTestDatabase()
    const laptop = await openLaptop()
    onTestFinished(laptop.remove)
    const program = laptop.start(
      { NODE_ENV: 'production', DATABASE_URL: database.url, PROVIDER_SECRET_KEY: randomBytes(32).toString('base64') },
      'provider',
    )
    await program.says(/"msg":"started"/)
    program.kill('SIGHUP')
    await program.says(new RegExp(changesNothing.source))
    await eventually(async () => (await fetch(`http://127.0.0.1:${laptop.ports.PROVIDER_PORT}/readyz`)).status === 200)
  })

  it('in production of a provider reads PROVIDER_CATALOG again', async () => {
    const database = await withTestDatabase()
    const laptop = await openLaptop()
    onTestFinished(laptop.remove)
    const file = path.join(laptop.folder, 'models.yaml')
    await fs.copyFile(path.resolve(import.meta.dirname, '../../src/provider/catalog/catalog.yaml'), file)
    const production = {
      NODE_ENV: 'production',
      DATABASE_URL: database.url,
      PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
    }
    const program = laptop.start({ ...production, PROVIDER_CATALOG: file }, 'provider')
    await program.says(/"msg":"started"/)
    program.kill('SIGHUP')
    await program.says(/"models":9,"msg":"catalog read again"/)
    await fs.appendFile(file, '  - slug: broken\n')
    program.kill('SIGHUP')
    await program.says(/models\.yaml models\.broken\.[^\n]*"msg":"the catalog is invalid: keeping the old one"/)
    await eventually(async () => (await fetch(`http://127.0.0.1:${laptop.ports.PROVIDER_PORT}/readyz`)).status === 200)
  })

  it('on a laptop without a terminal changes nothing', async () => {
    const database = await withTestDatabase()
    const laptop = await openLaptop()
    onTestFinished(laptop.remove)
    const program = await laptop.up({ DATABASE_URL: database.url })
    program.kill('SIGHUP')
    await program.says(new RegExp(changesNothing.source))
    await eventually(async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status === 200)
  })

  // `script` gives it a terminal, which closes with its own end.
  it.skipIf(!hasScript)('on a laptop stops the program when its terminal closes', async () => {
    const laptop = await openLaptop()
    onTestFinished(laptop.remove)
    const env = {
      PATH: process.env['PATH'] ?? '',
      ...Object.fromEntries(Object.entries(laptop.ports).map(([name, port]) => [name, String(port)])),
    }
    const terminal = startProcess('/usr/bin/script', ['-qec', `exec ${process.execPath} ${main}`, '/dev/null'], {
      cwd: laptop.folder,
      env,
    })
    await terminal.says(/Ctrl-C stops all of it/)
    const server = await laptop.serverPid()
    terminal.kill('SIGKILL')
    await eventually(async () => (await laptop.processes()).length === 0)
    expect(isAlive(server)).toBe(false)
    expect(await fs.readdir(path.join(laptop.dataDir, 'postgres'))).not.toContain('postmaster.pid')
  })
})
