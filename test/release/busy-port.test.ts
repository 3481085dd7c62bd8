import { once } from 'node:events'
import net from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { openLaptop, type PortSetting } from '../laptop/support/laptop.ts'
import { withTestDatabase } from '../support/database.ts'

const ports: [PortSetting, string, string][] = [
  ['INTERNAL_PORT', '127.0.0.1', 'receiver'],
  ['PROVIDER_PORT', '127.0.0.1', 'all'],
]
it.each(ports)('a busy %s: exit 1, and the message names the port and the setting', async (setting, host, what) => {
  const database = await withTestDatabase()
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const busy = net.createServer().listen(laptop.ports[setting], '127.0.0.1')
  await once(busy, 'listening')
  onTestFinished(() => void busy.close())
  const program = laptop.start({ DATABASE_URL: database.url }, what)
  expect(await program.exit).toMatchObject({ code: 1 })
  const message = `mediadock: port ${laptop.ports[setting]} on ${host} is in use by another program: set ${setting} to a free port`
  expect(
    program
      .output()
      .split('\n')
      .filter((line) => line.startsWith('mediadock:')),
  ).toEqual([message])
})

it('a busy PORT: the same, and no PostgreSQL is left behind', async () => {
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const busy = net.createServer().listen(laptop.ports.PORT, '127.0.0.1')
  await once(busy, 'listening')
  onTestFinished(() => void busy.close())
  const program = laptop.start()
  expect(await program.exit).toMatchObject({ code: 1 })
  expect(program.output()).toContain(
    `mediadock: port ${laptop.ports.PORT} on 0.0.0.0 is in use by another program: set PORT to a free port\n`,
  )
  expect(program.output()).not.toMatch(/"level":"(?:warn|error)"|"query"|"stack"/)
  expect(await laptop.processes()).toEqual([])
})
