import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { openLaptop, printedRequest } from '../laptop/support/laptop.ts'
import { eventually } from '../support/eventually.ts'

it('Ctrl-C twice leaves no process', { timeout: 60_000 }, async () => {
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const program = await laptop.up({ SHUTDOWN_GRACE_SECONDS: '20' })
  // An exchange that does not end holds the first stop up for as long as it may.
  const { url, headers } = printedRequest(program.output())
  const held = fetch(url, {
    method: 'POST',
    headers,
    body: new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode('{')) }),
    duplex: 'half',
  }).catch(() => {})
  await eventually(async () => {
    program.kill('SIGINT')
    return program.child.exitCode !== null
  }, 5000)
  await held
  await eventually(async () => (await laptop.processes()).length === 0)
})

it.each([
  ['is no JSON', '{"secret_key":'],
  ['lacks a key', '{"secret_key":"c2VjcmV0","live":{"api_key":"a","signing_secret":"b"}}'],
])(
  'a file of demo keys that %s ends the start with a line that says what to do',
  { timeout: 60_000 },
  async (_what, text) => {
    const fresh = await openLaptop()
    try {
      await fs.mkdir(fresh.dataDir)
      await fs.writeFile(path.join(fresh.dataDir, 'demo-keys.json'), text)
      const program = fresh.start()
      expect(await program.exit).toMatchObject({ code: 1 })
      expect(program.output()).toMatch(/demo-keys\.json does not contain valid demo keys: delete it to create new ones/)
    } finally {
      await fresh.remove()
    }
  },
)

it(
  'Ctrl-C while PostgreSQL is created leaves nothing behind; the next start works, and exits with 1 and the reason when its PostgreSQL ends',
  {
    timeout: 60_000,
  },
  async () => {
    const fresh = await openLaptop()
    try {
      const program = fresh.start()
      await eventually(() =>
        fs.access(path.join(fresh.dataDir, 'postgres.new')).then(
          () => true,
          () => false,
        ),
      )
      program.kill('SIGINT')
      expect(await program.exit).toEqual({ code: 0, signal: null })
      expect(await fresh.processes()).toEqual([])
      const again = await fresh.up()
      process.kill(await fresh.serverPid(), 'SIGQUIT')
      expect(await again.exit).toMatchObject({ code: 1 })
      expect(again.output()).toMatch(/mediadock: the embedded PostgreSQL ended/)
      expect(await fresh.processes()).toEqual([])
    } finally {
      await fresh.remove()
    }
  },
)
