import { expect, it } from 'vitest'
import { giveUpCard } from '../../../src/receiver/console/parked/give-up-card.ts'
import type { GiveUp } from '../../../src/receiver/queries/give-ups.ts'

const next_attempt_at = '2026-03-04T03:05:00.000Z'
const giveUp: GiveUp = {
  id: 'w',
  webhook_id: 'w',
  request_id: null,
  request_status: null,
  request_key_name: null,
  reason: 'no_matching_secret',
  outcome: 'refused',
  attempts_seen: 4,
  attempts_spent: 4,
  first_seen: '2026-03-04T02:57:00.000Z',
  last_seen: '2026-03-04T03:01:00.000Z',
  next_attempt_at,
  last_attempt_at: '2026-03-04T03:13:00.000Z',
  given_up: false,
}

it.each([
  ['due now', '2026-03-04T03:05:20.000Z'],
  [`datetime="${next_attempt_at}"`, '2026-03-04T03:04:59.000Z'],
])('says of the next attempt: %s', (expected, now) => {
  const card = String(giveUpCard([giveUp], new Date(now)))
  expect(card).toContain(expected)
  expect(card.includes('due now')).toBe(expected === 'due now')
})
