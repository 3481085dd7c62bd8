import { beforeAll, describe, expect, it } from 'vitest'
import { linesOf, mediadockHere } from '../../commands/mediadock.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
/** Visible ASCII is all that an accepted id may be; a refused one is logged as it was claimed. */
const claimed = ['x;=1+1', 'x;@SUM(A1)', '=1+1', 'x\t-2+3', '\n=1+1', '\uff1d1+1', 'evil\u001b[2J\u009b2J\u202e\u2028']

beforeAll(async () => {
  const its = await withReceiver()
  database = its.database
  // Rows that move to a day which is just being made may be missed by a read of the same moment.
  await eventually(
    async () =>
      (await database.sql`select from pg_inherits where inhparent = 'mediadock.arrivals'::regclass`).length === 9,
  )
  await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, remote, ack_ms)
    select now() - n * interval '1 second', 'refused', 'no_matching_secret', 401, id, '192.0.2.1', 1 from unnest(${claimed}::text[]) with ordinality as c (id, n)`
  return its.stop
})

describe('foreign text', () => {
  it('controls no terminal, also as JSON, and parses unchanged', async () => {
    const { stdout } = await mediadockHere({ DATABASE_URL: database.url }, 'arrivals', '--json')
    expect(stdout.replaceAll('\n', '')).not.toMatch(/\p{C}|\u2028/u)
    expect(linesOf(stdout).map(({ webhook_id }) => webhook_id)).toEqual(claimed)
  })

  it('controls no terminal in a command line error', async () => {
    const { code, stderr } = await mediadockHere({ DATABASE_URL: database.url }, 'arrivals\u001b[2J')
    expect(code).toBe(2)
    expect(stderr).not.toContain('\u001b')
  })
})
