import { expect, it, onTestFinished } from 'vitest'
import { claimCopies, putOffCopy, type Copy } from '../../../src/receiver/archive/copies.ts'
import { preferredServer } from '../../support/database.ts'
import { withReceiver } from '../../support/with-receiver.ts'

it('copies media first whose links end soonest, and lost ones in their ordinary turn', async () => {
  const { receiver, database, stop } = await withReceiver({ server: preferredServer })
  onTestFinished(stop)
  const ids = await database.sql`
    insert into mediadock.media_copies (request_id, kind, position, url, state, due_at, expires_at)
    select gen_random_uuid(), 'image', 0, name, 'waiting', now() + due, now() + expires from (values
      ('no promise', interval '-2 hours', null), ('lost', interval '-3 hours', interval '-1 minute'),
      ('in 30 minutes', interval '-4 hours', interval '30 minutes'),
      ('in 20 minutes', interval '-1 minute', interval '20 minutes'),
      ('put off', interval '1 minute', interval '5 minutes')) as given (name, due, expires) returning request_id`
  expect(ids).toHaveLength(5)
  const { db } = receiver.deps
  const claimed: Copy[] = []
  for (const limit of [1, 1, 1, 2]) claimed.push(...(await claimCopies(db, { limit })))
  expect(claimed.map(({ url }) => url)).toEqual(['in 20 minutes', 'in 30 minutes', 'lost', 'no promise'])

  // A pause that would outlast the link leaves half of its time.
  const failure = { fault: 'unreachable', trouble: 'x', pauseSeconds: 25 * 60, counts: true } as const
  for (const copy of claimed) await putOffCopy(db, copy, failure)
  const rows = await database.sql`
    select url, round(extract(epoch from due_at - now()) / 60)::int as minutes from mediadock.media_copies
    where tries = 1 order by url`
  expect([...rows]).toEqual([
    { url: 'in 20 minutes', minutes: 10 },
    { url: 'in 30 minutes', minutes: 25 },
    { url: 'lost', minutes: 25 },
    { url: 'no promise', minutes: 25 },
  ])
})
