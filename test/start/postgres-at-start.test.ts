import { describe, expect, it } from 'vitest'
import { mediadockHere } from '../commands/mediadock.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { expectFatalStart, expectWaitingStart, fatal, folder, production } from './support/failing-start.ts'

// One cause and one setting each. release/postgres-at-start.test.ts starts both programs with every cause and setting.

const [[, wrongPassword, refused]] = fatal

describe('in production', () => {
  it('a wrong password ends the start at once, in one line with its cause', async () => {
    const { url } = await withTestDatabase(preferredServer)
    const program = (await folder()).start({ ...production, DATABASE_URL: await wrongPassword(url) }, 'receiver')
    await expectFatalStart(program, refused)
  })

  it('an unreachable Postgres is waited for, alive but not ready, and logged; SIGTERM ends the wait with exit 0', () =>
    expectWaitingStart({}))

  it('a missing schema is waited for with MIGRATE_ON_START=false', async () => {
    const database = await withTestDatabase(preferredServer)
    await database.sql.unsafe('drop schema mediadock cascade')
    const laptop = await folder()
    const program = laptop.start({ ...production, DATABASE_URL: database.url, MIGRATE_ON_START: 'false' }, 'receiver')
    const ready = async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status
    await program.says(
      /"reason":"the schema mediadock is missing or older than this version, and MIGRATE_ON_START is false: run \\"mediadock migrate receiver\\""/,
    )
    expect(await ready()).toBe(503)
    expect((await mediadockHere({ DATABASE_URL: database.url }, 'migrate', 'receiver')).code).toBe(0)
    await program.says(/"msg":"started"/)
    await eventually(async () => (await ready()) === 200)
  })
})

it.each(fatal)('mediadock migrate with %s ends at once with that line', async (_what, urlOf, line) => {
  const database = await withTestDatabase(preferredServer)
  const { code, stderr } = await mediadockHere({ DATABASE_URL: await urlOf(database.url) }, 'migrate')
  expect({ code, stderr: stderr.trimEnd() }).toEqual({ code: 1, stderr: expect.stringMatching(line) })
})
