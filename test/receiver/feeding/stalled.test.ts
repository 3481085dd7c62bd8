import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { readProblems } from '../../../src/receiver/on-call/problems.ts'
import { readingOptions } from '../../../src/receiver/on-call/reading.ts'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

describe.each(usualServers)('a feed that stands still (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    return its.stop
  })
  const causes = async () =>
    (await readProblems(receiver.deps.db, await readingOptions(receiver.deps))).map(({ cause }) => cause)
  const metric = async (name: string) =>
    Number(
      new RegExp(`^${name} (.*)$`, 'm').exec(await (await fetch(new URL('metrics', receiver.internalUrl))).text())?.[1],
    )

  it('is a problem and a metric after its oldest change has waited for a minute, until it moves again', async () => {
    await database.sql.begin(async (tx) => {
      await tx`select from mediadock.feed_bounds for update`
      await deliver(receiver.webhookUrl, failed().body)
      await eventually(async () => (await database.sql`select from mediadock.changes`).length === 1)
      expect(await causes()).not.toContain('feed_stalled')
      await database.sql`update mediadock.changes set changed_at = now() - interval '61 seconds'`
      expect(await causes()).toContain('feed_stalled')
      expect(await metric('mediadock_feed_unsequenced_seconds')).toBeGreaterThan(60)
    })
    await eventually(async () => (await metric('mediadock_feed_unsequenced_seconds')) === 0)
    expect(await causes()).not.toContain('feed_stalled')
  })

  it('whose role fails three times in a row is a problem of that role', async () => {
    await database.sql.unsafe(`alter function mediadock.sequence_changes(pg_snapshot, integer) rename to gone`)
    await eventually(async () => (await causes()).includes('role_failing:feed'))
    expect(await metric('mediadock_role_failures{role="feed"}')).toBeGreaterThanOrEqual(3)
    await database.sql.unsafe(`alter function mediadock.gone(pg_snapshot, integer) rename to sequence_changes`)
    await eventually(async () => !(await causes()).includes('role_failing:feed'))
  })

  it('is not caused by one row: an unreadable row is refused', async () => {
    await expect(
      database.sql`insert into mediadock.changes (changed_at, request_ids, statuses, media_complete) values (now(), ${[randomUUID(), randomUUID()]}::uuid[], array[2], array[true])`,
    ).rejects.toMatchObject({ code: '23514' })
  })
})
