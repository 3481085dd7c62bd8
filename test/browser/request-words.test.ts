import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { linkPolicy } from '../../src/receiver/console/parts/media.ts'
import { lasting } from '../../src/receiver/console/parts/parts.ts'
import { answerOf, manualPollWords, parseAnswer } from '../../src/receiver/console/requests/request-words.ts'
import {
  delayOf,
  mediaCount,
  nextPoll,
  overdueBy,
  pollSummaryOf,
} from '../../src/receiver/console/requests/request-words.ts'
import type { Request } from '../../src/receiver/queries/requests.ts'

const now = new Date('2026-01-01T01:00:00.000Z')
const when = { now, stuckAfterSeconds: 120 }
const id = randomUUID()
const open: Request = {
  id,
  request_id: id,
  source_name: 'generation-queue',
  external_id: id,
  status: 'IN_QUEUE',
  progress: null,
  queue_position: null,
  overdue: false,
  model: 'vela',
  key_name: 'live',
  sandbox: false,
  metadata: null,
  media_items: 0,
  media_gone: 0,
  media_complete: false,
  first_media: null,
  cost: null,
  error_code: null,
  error_message: null,
  source: null,
  tracked_at: '2026-01-01T00:59:00.000Z',
  created_at: null,
  completed_at: null,
  landed_at: null,
  webhook_at: null,
  contradiction: false,
  confirmed_at: null,
  polls: 0,
  polled_at: null,
  poll_outcome: null,
  poll_detail: null,
  next_poll_at: null,
}
const landed: Request = {
  ...open,
  status: 'COMPLETED',
  landed_at: '2026-01-01T00:59:30.000Z',
  source: 'webhook',
  media_items: 1,
  media_gone: 0,
  cost: 4,
}
const at = '2026-01-01T00:59:40.000Z'

describe('the summary of the last poll', () => {
  it.each<[string, Partial<Request>, string, string]>([
    ['nothing yet', {}, 'not polled', 'never'],
    ['that it runs', { status: 'IN_PROGRESS', poll_outcome: 'running' }, 'IN_PROGRESS', 'still running'],
    [
      'that it runs, though a webhook says that it ended',
      { ...landed, poll_outcome: 'running' },
      'running',
      'still running',
    ],
    ['that nobody knows it', { poll_outcome: 'not_found' }, 'not found', 'no key that was tried knows it'],
    ['the same for a day', { poll_outcome: 'lost' }, 'lost', 'polling stopped'],
    ['an error', { poll_outcome: 'unreachable', poll_detail: 'answered 503' }, 'unreachable', 'answered 503'],
    ['nonsense', { poll_outcome: 'invalid', poll_detail: 'no status\nat all' }, 'unreadable', 'at all'],
    [
      'a result that Postgres refused',
      { poll_outcome: 'landing_failed', poll_detail: 'no such column (42703)' },
      'not landed',
      'no such column',
    ],
    [
      'that it was postponed',
      { poll_outcome: 'postponed', poll_detail: 'quota' },
      'poll postponed',
      'calls that such polls may use in this minute are used up',
    ],
    [
      'that it was postponed, for a reason that has no words',
      { poll_outcome: 'postponed', poll_detail: 'moon' },
      'poll postponed',
      'moon',
    ],
    ['401', { poll_outcome: 'unauthorized' }, 'no answer', 'refuses the API key (401 or 403)'],
    ['429', { poll_outcome: 'rate_limited' }, 'no answer', '429'],
    ['only by its webhook', landed, 'COMPLETED', 'known from its webhook'],
    [
      'its own result',
      { ...landed, confirmed_at: at, poll_outcome: 'result' },
      'COMPLETED',
      "the provider's own result is known",
    ],
    ['a result that was not taken over', { ...landed, poll_outcome: 'result' }, 'answered', 'not applied'],
    [
      'that it was postponed, for a reason named like a method',
      { poll_outcome: 'postponed', poll_detail: 'constructor' },
      'poll postponed',
      'constructor',
    ],
  ])('%s', (_what, known, word, text) => {
    const summary = pollSummaryOf({ ...open, ...known })
    expect(summary.word).toBe(word)
    expect(summary.text).toContain(text)
  })
})

describe('times in words', () => {
  it.each<[string, string | null, string | null, string | undefined]>([
    ['after', '2026-01-01T00:59:28.500Z', '2026-01-01T00:59:30.000Z', 'landed 2\u00a0s after its end at the provider'],
    ['at once', at, at, 'landed 0\u00a0ms after its end at the provider'],
    [
      'before: the clocks differ',
      '2026-01-01T00:59:33.000Z',
      '2026-01-01T00:59:30.000Z',
      'landed 3\u00a0s before its end at the provider: the clocks differ',
    ],
    ['not landed', at, null, undefined],
    ['no end of the provider', null, at, undefined],
  ])('the delay, %s', (_what, completed_at, landed_at, words) => {
    expect(delayOf({ ...open, completed_at, landed_at })).toBe(words)
  })

  it('says how long something lasts only once its beginning is not "just now"', () => {
    expect([237, 4999, 5000, 180_000].map(lasting)).toEqual(['', '', 'for 5\u00a0s', 'for 3\u00a0min'])
  })

  it('counts from when it became overdue', () => {
    expect(overdueBy({ ...open, overdue: true, tracked_at: '2026-01-01T00:48:00.000Z' }, when)).toBe('10\u00a0min')
    expect(overdueBy(open, when)).toBeUndefined()
  })

  it.each<[string, Partial<Request>, object]>([
    ['planned', { next_poll_at: at }, { at }],
    ['once it is overdue', {}, { at: '2026-01-01T01:01:00.000Z' }],
    ['not, where nothing is left', { ...landed, confirmed_at: at }, { never: 'none: the whole result is known' }],
    ['not, where it was given up', { poll_outcome: 'lost' }, { never: 'none: polling stopped after a day' }],
  ])('the next poll: %s', (_what, known, expected) => {
    expect(nextPoll({ ...open, ...known }, when)).toEqual(expected)
  })

  it('counts media only of completed requests, and shows when there may be more', () => {
    expect(mediaCount(open)).toBeUndefined()
    expect(mediaCount(landed)).toBe('1 so far')
    expect(mediaCount({ ...landed, media_items: 4, media_complete: true })).toBe('4 of 4')
    expect(mediaCount({ ...landed, media_items: 4, media_gone: 1, media_complete: true })).toBe('4 of 4, 1 gone')
  })
})

describe('the result of a manual poll', () => {
  const whole = { ...landed, confirmed_at: at, media_complete: true }
  it.each([
    ['another was polling', undefined, open, open, 'busy'],
    ['it landed', 'landed', open, landed, 'landed'],
    ['it was overruled', 'landed', landed, { ...landed, status: 'FAILED' as const }, 'landed'],
    ['the rest of its media', 'landed', landed, { ...whole, media_items: 4 }, 'completed'],
    ['only its times', 'landed', { ...landed, media_complete: true }, whole, 'confirmed'],
    ['nothing new', 'known', whole, whole, 'unchanged'],
    ['it runs', 'running', open, open, 'running'],
    ['nobody knows it', 'lost', open, open, 'not_found'],
    ['an error', 'landing_failed', open, open, 'failed'],
    ['postponed', 'rate_limited', open, open, 'postponed'],
  ] as const)('%s', (_what, ending, before, after, answer) => {
    expect(answerOf(ending, before, after)).toBe(answer)
    expect(parseAnswer(answer)).toBe(answer)
    expect(manualPollWords(answer, after).text).toMatch(/\.$/)
  })

  it('takes no text from an address', () => {
    expect(parseAnswer('owned')).toBeUndefined()
    expect(parseAnswer(undefined)).toBeUndefined()
  })
})

describe('which URLs of a payload become links', () => {
  const why = (link: string, settings: { mediaHosts?: readonly string[]; production?: boolean } = {}) =>
    linkPolicy({
      mediaHosts: settings.mediaHosts?.slice(),
      mediaArchive: undefined,
      production: settings.production ?? true,
    }).whyNot(link)
  it.each([
    ['https://media.test/a.png', undefined],
    ['javascript:alert(1)', 'it is not https'],
    ['data:text/html,x', 'it is not https'],
    ['http://media.test/a.png', 'it is not https'],
    ['http://127.0.0.1:4000/a.png', 'it is not https'],
    ['/a.png', 'it is not a valid URL'],
    ['', 'it is not a valid URL'],
  ])('%s', (link, reason) => expect(why(link)).toBe(reason))

  it('follows MEDIA_HOSTS, and allows loopback outside production', () => {
    expect(why('https://evil.test/a', { mediaHosts: ['media.test'] })).toBe('its host is not in MEDIA_HOSTS')
    expect(why('https://media.test@evil.test/a', { mediaHosts: ['media.test'] })).toBe('its host is not in MEDIA_HOSTS')
    expect(why('http://127.0.0.1:4000/a.png', { production: false })).toBeUndefined()
    expect(why('http://127.0.0.1.evil.test/a.png', { production: false })).toBe('it is not https')
  })
})
