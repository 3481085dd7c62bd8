import { getViewSelectedFields } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import { results } from '../../../src/receiver/domain/results-schema.ts'
import type { JudgedReport } from '../../../src/receiver/landing/judge.ts'
import {
  agrees,
  mayAgree,
  rulingOnMismatch,
  type MismatchedDelivery,
  type ShownResult,
} from '../../../src/receiver/landing/refine-rulings.ts'
import type { ReportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import { verdictOn, type RequestRow, type Ruling } from '../../../src/receiver/landing/rules.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'

/* The rules alone. interleavings.test.ts and environments.test.ts show them on Postgres. */

const unknownKey = { name: 'retired', signing_secret: 'whsec_retired_secret', retired: true }
const keys = keysOf(liveKey, sandboxKey, unknownKey)

const environmentOf = { live: 'live', sandbox: 'sandbox', retired: undefined } as const
type Signer = keyof typeof environmentOf

function report(signer: Signer, given: Partial<ReportToLand> = {}): ReportToLand {
  return {
    via: 'delivery',
    source_name: null,
    reporting_key: signer,
    environment: environmentOf[signer],
    request_id: '6b0f5b5e-0000-4000-8000-000000000000',
    external_id: null,
    status: 'COMPLETED',
    model: undefined,
    output: undefined,
    media: [],
    media_complete: true,
    cost: 3,
    error_code: undefined,
    error_message: undefined,
    created_at: undefined,
    completed_at: undefined,
    flags: [],
    ...given,
  }
}

const polled = { via: 'poll' } as const
const failed = { status: 'FAILED' } as const

/** As a service's INSERT by id alone makes it. */
const inserted: RequestRow = {
  version: '1',
  source_name: null,
  status: 'IN_QUEUE',
  has_landed: false,
  media_complete: false,
  is_confirmed: false,
  key_name: null,
  key_source: null,
  request_environment: undefined,
  result_environment: undefined,
  ended_by: null,
  cost: null,
  next_poll_at: null,
  is_poll_due: false,
}
const tracked = (signer: Signer): RequestRow => ({
  ...inserted,
  key_name: signer,
  key_source: 'tracked',
  request_environment: environmentOf[signer],
})
const landed = (row: RequestRow, signer: Signer): RequestRow => ({
  ...row,
  status: 'COMPLETED',
  has_landed: true,
  media_complete: true,
  key_name: row.key_name ?? signer,
  key_source: row.key_name === null ? 'landed' : row.key_source,
  result_environment: environmentOf[signer],
  ended_by: 'webhook',
  cost: '3',
})
const confirmed = (signer: Signer): RequestRow => ({
  ...landed(tracked(signer), signer),
  is_confirmed: true,
  ended_by: 'reconciler',
})

describe('the ruling', () => {
  it.each<[string, ReportToLand, RequestRow | undefined, string]>([
    ['any webhook, no row', report('sandbox'), undefined, 'landed'],
    ['another source', report('live', { source_name: 'other' }), tracked('live'), 'source_mismatch'],
    ['a result of another source', report('live', { ...polled, source_name: 'other' }), inserted, 'source_mismatch'],

    ['a webhook of the environment of the request', report('live'), tracked('live'), 'landed'],
    ['one of the other environment', report('sandbox'), tracked('live'), 'key_mismatch'],
    ['the other way round', report('live'), tracked('sandbox'), 'key_mismatch'],
    ['one against a confirmed result', report('sandbox'), confirmed('live'), 'key_mismatch'],
    ['one against the key that a service named', report('sandbox'), { ...inserted, key_name: 'live' }, 'key_mismatch'],
    [
      'one against a key that only a landing named',
      report('live'),
      { ...landed(inserted, 'sandbox'), key_name: 'sandbox' },
      'landed',
    ],
    [
      'one against a service’s key that is not configured',
      report('sandbox'),
      { ...inserted, key_name: 'gone' },
      'landed',
    ],

    ['an unknown key, first', report('retired'), inserted, 'landed'],
    ['an unknown key for a live request', report('retired'), tracked('live'), 'key_mismatch'],
    ['the request’s own key, unknown by now', report('retired'), { ...tracked('live'), key_name: 'retired' }, 'landed'],
    ['an unknown key against a confirmed result', report('retired'), confirmed('live'), 'no_effect'],
    [
      'an unknown key against an undecided result',
      report('retired', failed),
      landed(inserted, 'live'),
      'contradiction',
    ],

    ['a sandbox key after a live one, undecided', report('sandbox'), landed(inserted, 'live'), 'key_mismatch'],
    ['a live key after a sandbox one, undecided', report('live'), landed(inserted, 'sandbox'), 'landed'],
    [
      'a sandbox key after a live one, for a sandbox request',
      report('sandbox'),
      { ...landed(inserted, 'live'), request_environment: 'sandbox' },
      'landed',
    ],

    ['the same end again', report('live'), landed(tracked('live'), 'live'), 'no_effect'],
    ['another end', report('live', failed), landed(tracked('live'), 'live'), 'contradiction'],
    [
      'the provider after a webhook',
      report('live', { ...polled, ...failed }),
      landed(tracked('live'), 'live'),
      'landed',
    ],
    ['the provider of the other environment', report('sandbox', polled), landed(tracked('live'), 'live'), 'landed'],
    ['the provider again, the same', report('live', polled), confirmed('live'), 'no_effect'],
    ['the provider again, another end', report('live', { ...polled, ...failed }), confirmed('live'), 'contradiction'],
  ])('%s', (_what, one, row, ruling) => {
    expect(verdictOn(one, row, keys).ruling).toBe(ruling)
  })
})

describe('the row to write', () => {
  it.each<[string, ReportToLand, RequestRow | undefined, Partial<ReturnType<typeof verdictOn>>]>([
    [
      'of a webhook without a row keeps the environment of the request undecided',
      report('live'),
      undefined,
      {
        key_name: 'live',
        key_source: 'landed',
        request_environment: undefined,
        result_environment: 'live',
        ended_by: 'webhook',
      },
    ],
    [
      'of the provider decides it',
      report('live', polled),
      landed(inserted, 'sandbox'),
      {
        key_name: 'live',
        request_environment: 'live',
        result_environment: 'live',
        ended_by: 'reconciler',
        changes_environment: true,
      },
    ],
    [
      'of the provider changes the environment of a request that was tracked with a wrong key',
      report('live', polled),
      { ...landed(inserted, 'live'), request_environment: 'sandbox' },
      { request_environment: 'live', result_environment: 'live', changes_environment: true },
    ],
    [
      'of a tracked request keeps its key',
      report('retired'),
      { ...tracked('live'), key_name: 'retired' },
      { key_name: 'retired', key_source: 'tracked', request_environment: 'live', result_environment: 'live' },
    ],
    [
      'in the same end keeps who reported it first, and a cost that is not stated',
      report('live', { ...polled, cost: undefined }),
      landed(tracked('live'), 'live'),
      { ended_by: 'webhook', cost: '3', changes_environment: false },
    ],
    [
      'takes no cost of the other environment',
      report('live', { cost: undefined }),
      landed(inserted, 'sandbox'),
      { ended_by: 'webhook', cost: undefined, changes_environment: true },
    ],
  ])('%s', (_what, one, row, expected) => {
    expect(verdictOn(one, row, keys)).toMatchObject(expected)
  })
})

describe('the next poll', () => {
  const at = '2030-01-01T00:00:00Z'
  it.each<[string, ReportToLand, RequestRow | undefined, string | null]>([
    ['of an incomplete result is now', report('live', { media_complete: false }), tracked('live'), 'now'],
    ['of the provider’s result is none', report('live', polled), tracked('live'), null],
    ['of a live webhook for a live request is none', report('live', failed), tracked('live'), null],
    ['of a live webhook without a row is none', report('live', failed), undefined, null],
    ['of a sandbox webhook without a row is now', report('sandbox', failed), undefined, 'now'],
    ['of a webhook of an unknown key is now', report('retired', failed), inserted, 'now'],
    ['after another environment is now', report('live'), landed(inserted, 'sandbox'), 'now'],
    ['that is due stays due', report('live', failed), { ...tracked('live'), is_poll_due: true }, 'now'],
    [
      'of another live key than the tracked one is now',
      report('live', failed),
      { ...tracked('live'), key_name: 'sandbox' },
      'now',
    ],
    [
      'that a hint asked for stays',
      report('live', failed),
      { ...tracked('live'), key_source: 'landed', next_poll_at: at },
      at,
    ],
    [
      'of a tracked request ends with its result',
      report('live', failed),
      { ...tracked('live'), next_poll_at: at },
      null,
    ],
  ])('%s', (_what, one, row, expected) => {
    const { is_polled_now: isNow, next_poll_at: next } = verdictOn(one, row, keys)
    expect(isNow ? 'now' : next).toBe(expected)
  })
})

/* The rulings of refine-rulings.ts. */

const judged = (one: ReportToLand, row: RequestRow): JudgedReport => ({
  ...one,
  ...verdictOn(one, row, keys),
  version: row.version,
  was_landed: row.has_landed,
  was_status: row.status,
  was_complete: row.media_complete,
  was_confirmed: row.is_confirmed,
})

describe('a result of the provider agrees with what readers have', () => {
  const row = landed(tracked('live'), 'live')
  it.each<[string, ReportToLand, RequestRow, boolean]>([
    ['the same end', report('live', polled), row, true],
    ['another end', report('live', { ...polled, ...failed }), row, false],
    ['another environment', report('sandbox', polled), row, false],
    ['what was incomplete', report('live', polled), { ...row, media_complete: false }, false],
    ['an open request', report('live', polled), tracked('live'), false],
    ['a confirmed one', report('live', polled), confirmed('live'), false],
    ['a webhook', report('live'), row, false],
  ])('%s', (_what, one, of, expected) => {
    expect(mayAgree(judged(one, of))).toBe(expected)
  })

  const shown: ShownResult = { key_name: 'live', sandbox: false, has_same_cost: true, has_same_output: true }
  it.each<[string, ShownResult, boolean]>([
    ['the same', shown, true],
    ['another cost', { ...shown, has_same_cost: false }, false],
    ['another output', { ...shown, has_same_output: false }, false],
    ['another key', { ...shown, key_name: 'other' }, false],
    ['another environment', { ...shown, sandbox: true }, false],
  ])('%s, in the same end', (_what, of, expected) => {
    expect(agrees(judged(report('live', polled), row), of)).toBe(expected)
  })

  it('is decided about every column of the view `results`', () => {
    const compared = ['status', 'media_complete', 'key_name', 'sandbox', 'cost', 'output']
    const ofProvider = ['model', 'error_code', 'error_message', 'created_at', 'completed_at']
    const notOfResult = ['request_id', 'source_name', 'external_id', 'metadata', 'idempotency_key', 'landed_at']
    const notOfEnd = ['source', 'progress', 'queue_position']
    const columns = Object.keys(getViewSelectedFields(results))
    expect(columns.toSorted()).toEqual([...compared, ...ofProvider, ...notOfResult, ...notOfEnd].toSorted())
  })
})

describe('a mismatch', () => {
  const first: MismatchedDelivery = { is_flagged: false, is_replayed: false, parked_others: 0 }
  const again = { ...first, is_flagged: true }
  const seventeenth = { ...first, parked_others: 16 }

  it.each<[string, ReportToLand['via'], RequestRow, MismatchedDelivery, Ruling]>([
    ['is parked', 'delivery', tracked('live'), first, 'key_mismatch'],
    ['is parked again', 'delivery', tracked('live'), again, 'key_mismatch'],
    ['is not parked again for a confirmed result', 'delivery', confirmed('live'), again, 'no_effect'],
    ['is the 16th parked one', 'delivery', tracked('live'), { ...first, parked_others: 15 }, 'key_mismatch'],
    ['is deleted if 16 are parked', 'delivery', tracked('live'), seventeenth, 'discarded'],
    ['stays in a replay of many', 'delivery', tracked('live'), { ...seventeenth, is_replayed: true }, 'key_mismatch'],
    ['stays in a replay alone', 'replay', tracked('live'), seventeenth, 'key_mismatch'],
  ])('%s', (_what, via, row, delivery, ruling) => {
    expect(rulingOnMismatch('key_mismatch', judged(report('sandbox', { via }), row), delivery)).toBe(ruling)
  })
})
