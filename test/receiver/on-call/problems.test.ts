import { describe, expect, it } from 'vitest'
import { archiveProblems } from '../../../src/receiver/archive/archive.ts'
import { StoreError } from '../../../src/receiver/archive/store.ts'
import type { Problem } from '../../../src/receiver/domain/problem.ts'
import type { Numbers } from '../../../src/receiver/on-call/numbers.ts'
import { problemsOf } from '../../../src/receiver/on-call/problems.ts'
import type { GiveUp } from '../../../src/receiver/queries/give-ups.ts'
import type { KeyState } from '../../../src/receiver/queries/keys.ts'
import { subscriptionProblems } from '../../../src/receiver/subscriptions/subscriptions.ts'

const now = new Date('2026-03-04T03:00:00Z')
const calm: Numbers = {
  now,
  stuckAfterSeconds: 120,
  silentAfterSeconds: 300,
  startedAt: undefined,
  recent: { minutes: 5, arrivals: 100, by_outcome: [], ack_p95_ms: 12 },
  failing: [],
  inbox: { pending: 0, oldestSeconds: 0, trouble: null },
  parked: [],
  unsequencedSeconds: 0,
  notifyQueue: { usage: 0.1, notifies: true, holder: null },
  failingRoles: [],
  overdue: 0,
  overduePolls: undefined,
  reconciler: {
    silent: false,
    silent_after_seconds: 300,
    last_run: null,
    backlog: {
      due: 0,
      minutes: 0,
      incomplete: 0,
      per_minute: 100,
      complete_by: null,
      due_capped: false,
      incomplete_capped: false,
    },
  },
  keys: [],
  balances: { refused: [], accounts: [] },
  refusedSubmits: [],
  giveUps: [],
  outageEndedAt: null,
  strangers: 0,
  failingSources: [],
  contradictions: {
    open: 0,
    decided: 0,
    last_open: null,
    last_decided: null,
  },
  webhooks: { landed: 0, reported: 0, newest: [], late_seconds: null, last_webhook_at: null },
  foreignMedia: { requests: [], hosts: [] },
  waitingSubmits: 0,
  stuckSubmits: [],
  fetchRatePerMinute: 100,
  webhookPublicUrl: 'https://hooks.example/webhooks',
  generationApiUrl: 'https://api.example',
  ofSlices: [],
}
const away = {
  source_name: 'generation-queue',
  failing_since: '2026-03-04T02:57:00.000Z',
  failed: 3,
  detail: null,
}
const key: KeyState = {
  id: 'live',
  name: 'live',
  configured: true,
  source_name: 'generation-queue',
  environment: 'live',
  retired: false,
  fingerprint: '00000000',
  first_match_at: null,
  last_match_at: null,
  matches: 0,
  still_matches: false,
  calls: 3,
  quota_left: 97,
  account_id: null,
  account_calls: null,
  account_limit: null,
  blocked_until: null,
  blocked_reason: null,
}
const giveUp: GiveUp = {
  id: 'w',
  webhook_id: 'w',
  request_id: null,
  request_status: null,
  request_key_name: null,
  reason: 'no_matching_secret',
  outcome: 'refused',
  attempts_seen: 5,
  attempts_spent: 5,
  first_seen: '2026-03-04T02:50:00.000Z',
  last_seen: '2026-03-04T02:57:00.000Z',
  next_attempt_at: '2026-03-04T03:05:00.000Z',
  last_attempt_at: '2026-03-04T03:05:00.000Z',
  given_up: false,
}
const refusedFor = (reason: string | null, arrivals: number) => ({
  failing: [{ outcome: 'refused' as const, reason, arrivals, vouched: true }],
})
const none = { count: 0, requests: [], trouble: null }
const archive = {
  waiting: none,
  due_since: null,
  links_end: null,
  store_trouble: null,
  gone: none,
  failed: none,
  expiring: none,
  expires_first: null,
}
const run = {
  id: 1,
  started_at: '',
  ended_at: '2026-03-04T02:00:00.000Z',
  duration_ms: 1,
  trigger: 'cron' as const,
  outcome: 'ok' as const,
  idle_runs: 0,
  scanned: 0,
  landed: 0,
  running: 0,
  not_found: 0,
  failed: 0,
  postponed: 0,
  rate_limited: 0,
  error: null,
}

type Case = [what: string, numbers: Partial<Numbers>, expected: Omit<Problem, 'text'> & { text: string }]

const lastAt = '2026-03-04T02:50:00.000Z'
const account = { keyName: 'live', credits: 240, spentLastHour: 10, difference: null }
const stuck = { source_name: null, submits: 2, oldest_at: lastAt, error: 'connect ECONNREFUSED' }
const cases: Case[] = [
  [
    'submits that the provider refused for want of credits',
    {
      balances: { refused: [{ keyName: 'live', at: '2026-03-04T02:50:00.000Z' }], accounts: [] },
      refusedSubmits: [{ keyName: 'live', status: 402, code: 'insufficient_credits', count: 7, lastAt }],
    },
    {
      severity: 'critical',
      cause: 'credits_spent:live',
      href: '/issues?cause=credits_spent%3Alive',
      affected: ['live'],
      count: 7,
      text: 'The account of the key live has too few credits: 7 submits were refused in the last hour (402 insufficient_credits), the last at 02:50. Add credits at the provider. Then callers must submit again. Polling and landing continue. This alarm ends an hour after the last refusal.',
    },
  ],
  [
    'submits that the provider refused',
    {
      refusedSubmits: [
        { keyName: 'live', status: 422, code: 'invalid_input', count: 2, lastAt },
        { keyName: 'sandbox', status: 404, code: 'model_not_found', count: 1, lastAt: '2026-03-04T02:51:00.000Z' },
      ],
    },
    {
      severity: 'notice',
      cause: 'submits_refused',
      href: '/issues?cause=submits_refused',
      affected: ['live', 'sandbox'],
      count: 3,
      text: 'The provider refused 3 submits in the last hour, the last at 02:51: 422 invalid_input 2× with the key live, 404 model_not_found 1× with the key sandbox. Nothing was charged. Each caller got the reason and must correct its call.',
    },
  ],
  [
    'submits with a key that may not submit',
    { refusedSubmits: [{ keyName: 'live', status: 403, code: 'insufficient_scope', count: 1, lastAt }] },
    {
      severity: 'warning',
      cause: 'submits_refused',
      href: '/issues?cause=submits_refused',
      affected: ['live'],
      count: 1,
      text: 'The provider refused 1 submit in the last hour, the last at 02:50: 403 insufficient_scope 1× with the key live. Nothing was charged. Each caller got the reason and must correct its call. A key that is answered 403 may not submit: submit with another.',
    },
  ],
  [
    'a balance that lasts less than a day',
    { balances: { refused: [], accounts: [{ ...account, credits: 235 }] } },
    {
      severity: 'warning',
      cause: 'balance_low:live',
      href: '/issues?cause=balance_low%3Alive',
      affected: ['live'],
      text: 'The account of the key live has 235 credits left, which last about 24 h at the rate of the last hour. Add credits. The balance is read once an hour.',
    },
  ],
  [
    "landed cost that differs from the provider's usage",
    { balances: { refused: [], accounts: [{ ...account, difference: 0.123 }] } },
    {
      severity: 'warning',
      cause: 'cost_differs:live',
      href: '/issues?cause=cost_differs%3Alive',
      affected: ['live'],
      text: "The landed cost of 30 days differs by 12.3 % from the provider's usage of the account of the key live. Look for requests that were submitted elsewhere, or that have not landed.",
    },
  ],
  [
    'limited wrong tokens',
    {
      limited: [
        { address: '203.0.113.9', until: new Date('2026-03-04T03:00:40Z'), asked: 'GET /api/feed by curl/8.5.0' },
        { address: '203.0.113.10', until: new Date('2026-03-04T03:00:50Z') },
      ],
    },
    {
      severity: 'warning',
      cause: 'wrong_tokens',
      href: '/issues?cause=wrong_tokens',
      count: 2,
      affected: ['203.0.113.9', '203.0.113.10'],
      text: 'Clients at 203.0.113.9 and 1 other address call with a wrong INTERNAL_TOKEN, perhaps an old one. The last call was GET /api/feed by curl/8.5.0. Give those that are yours the current token. Their further wrong tokens are answered 429 until 03:00:50. Callers with the right token are not affected.',
    },
  ],
  [
    'a change that has waited longer than a minute for its position',
    { unsequencedSeconds: 61 },
    {
      severity: 'critical',
      cause: 'feed_stalled',
      href: '/subscriptions',
      text: 'The feed has stopped: the oldest change has waited 61 s for its position. Readers and subscriptions get nothing new until it continues.',
    },
  ],
  [
    'a NOTIFY queue that is half full',
    { notifyQueue: { usage: 0.5, notifies: false, holder: null } },
    {
      severity: 'warning',
      cause: 'notify_queue_full',
      href: '/issues?cause=notify_queue_full',
      text: "Postgres's NOTIFY queue is 50 % full, so readers are not notified and find changes by polling. A session keeps a transaction open after LISTEN. Find the oldest open transaction in pg_stat_activity, as a role with pg_monitor, and end that session.",
    },
  ],
  [
    'a role that fails for the third time in a row',
    { failingRoles: [{ role: 'archive', failures: 3, seconds: 4, error: new Error('the disk is full') }] },
    {
      severity: 'warning',
      cause: 'role_failing:archive',
      href: '/issues?cause=role_failing%3Aarchive',
      affected: ['archive'],
      text: 'The background role archive of a receiver has failed 3 times in a row, for 4 s: the disk is full. It is retried. That receiver logs each failure.',
    },
  ],
  [
    'many refused for lack of a secret',
    refusedFor('no_matching_secret', 12),
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: '12 of 100 arrivals in the last 5 minutes were refused: no secret matches. They name no request that waits here: a stranger may be sending them. If the provider has a key whose secret is missing here, add it, then verify them again.',
    },
  ],
  [
    'a fifth refused for lack of a secret',
    refusedFor('no_matching_secret', 20),
    {
      severity: 'critical',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: expect.stringMatching(/^20 of 100 arrivals in the last 5 minutes were refused: no secret matches/),
    },
  ],
  [
    'few refused for lack of a secret',
    refusedFor('no_matching_secret', 1),
    {
      severity: 'notice',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: '1 of 100 arrivals in the last 5 minutes was refused: no secret matches. It names no request that waits here: a stranger may be sending it. If the provider has a key whose secret is missing here, add it, then verify it again.',
    },
  ],
  [
    'refused for their time',
    refusedFor('timestamp_too_old', 50),
    {
      severity: 'warning',
      cause: 'refused:timestamp_too_old',
      href: '/parked?reason=timestamp_too_old',
      text: '50 of 100 arrivals in the last 5 minutes were refused: the signed time is too old. They name no request that waits here: a stranger may be sending them.',
    },
  ],
  [
    'refused, with the time at which the provider stops sending them',
    {
      ...refusedFor('no_matching_secret', 1),
      giveUps: [
        { ...giveUp, request_status: 'IN_QUEUE', request_key_name: 'live' },
        { ...giveUp, given_up: true },
      ],
    },
    {
      severity: 'critical',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      count: 1,
      text: "1 of 100 arrivals in the last 5 minutes was refused: no secret matches. 1 is for our own request of the key live, which waits for its result: the key's secret was probably replaced at the provider. The provider's final attempt is in 5 min. Add the key with its new secret beside the old one, then verify it again. The quarantine keeps it. By the provider's schedule, 1 will not be sent again.",
    },
  ],
  [
    'refused for an undescribed reason',
    refusedFor('some_new_cause', 50),
    {
      severity: 'warning',
      cause: 'refused:some_new_cause',
      href: '/parked?reason=some_new_cause',
      text: '50 of 100 arrivals in the last 5 minutes were refused: some new cause. They name no request that waits here: a stranger may be sending them.',
    },
  ],
  [
    'a reason that must be escaped in a link',
    refusedFor('a&b=c', 50),
    {
      severity: 'warning',
      cause: 'refused:a&b=c',
      href: '/parked?reason=a%26b%3Dc',
      text: '50 of 100 arrivals in the last 5 minutes were refused: a&b=c. They name no request that waits here: a stranger may be sending them.',
    },
  ],
  [
    'Postgres away',
    {
      failing: [{ outcome: 'unavailable', reason: 'postgres_failed', arrivals: 1, vouched: true }],
      recent: {
        ...calm.recent,
        arrivals: 1000,
      },
    },
    {
      severity: 'critical',
      cause: 'unavailable:postgres_failed',
      href: '/deliveries?view=arrivals&outcome=unavailable&reason=postgres_failed',
      text: '1 of 1000 arrivals in the last 5 minutes was answered 503: Postgres failed.',
    },
  ],
  [
    'Postgres that is back, while the provider has yet to send again',
    {
      failing: [{ outcome: 'unavailable', reason: 'postgres_failed', arrivals: 2, vouched: true }],
      giveUps: [
        { ...giveUp, outcome: 'unavailable', reason: 'postgres_failed', last_seen: '2026-03-04T02:57:08.000Z' },
      ],
      recent: { ...calm.recent, arrivals: 90 },
    },
    {
      severity: 'critical',
      cause: 'unavailable:postgres_failed',
      href: '/deliveries?view=arrivals&outcome=unavailable&reason=postgres_failed',
      text: "2 of 90 arrivals in the last 5 minutes were answered 503, the last at 02:57:08: Postgres failed. The provider's final attempt is in 5 min. If that fails too, only the poll of a tracked request brings the result.",
    },
  ],
  [
    'webhooks of a recorded outage of Postgres that the provider will send again',
    {
      failing: [{ outcome: 'unavailable', reason: 'postgres_failed', arrivals: 2, vouched: true }],
      giveUps: [
        { ...giveUp, outcome: 'unavailable', reason: 'postgres_failed', last_seen: '2026-03-04T02:57:08.000Z' },
      ],
      outageEndedAt: '2026-03-04T02:57:10.000Z',
      recent: { ...calm.recent, arrivals: 90 },
    },
    {
      severity: 'notice',
      cause: 'unavailable:postgres_failed',
      href: '/deliveries?view=arrivals&outcome=unavailable&reason=postgres_failed',
      text: "2 of 90 arrivals in the last 5 minutes were answered 503, the last at 02:57:08: Postgres failed. The provider's final attempt is in 5 min. If that fails too, only the poll of a tracked request brings the result.",
    },
  ],
  [
    'slow acknowledgements',
    { recent: { ...calm.recent, ack_p95_ms: 2500 } },
    {
      severity: 'warning',
      cause: 'slow_acknowledgement',
      href: '/deliveries?view=arrivals',
      text: 'Responses are slow: 5 % of webhooks wait longer than 2.5 s for Postgres. After 10 s the provider counts a failed attempt.',
    },
  ],
  [
    'an old inbox',
    { inbox: { pending: 1, oldestSeconds: 61, trouble: null } },
    {
      severity: 'critical',
      cause: 'inbox_old',
      href: '/deliveries?state=pending',
      text: '1 accepted delivery waits to be processed, the oldest for 61 s.',
    },
  ],
  [
    'a webhook for our own request that is tracked without a key',
    { giveUps: [{ ...giveUp, request_status: 'IN_PROGRESS' }] },
    {
      severity: 'critical',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: "1 webhook was refused and not accepted since: no secret matches. 1 is for our own request, which waits for its result. The provider's final attempt is in 5 min. Add the key with its new secret beside the old one, then verify it again. The quarantine keeps it.",
    },
  ],
  [
    'three forged webhooks, also just before a provider would give them up',
    { ...refusedFor('no_matching_secret', 3), giveUps: [giveUp, giveUp, giveUp] },
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: '3 of 100 arrivals in the last 5 minutes were refused: no secret matches. They name no request that waits here: a stranger may be sending them. If the provider has a key whose secret is missing here, add it, then verify them again.',
    },
  ],
  [
    'an unknown webhook that would soon be given up',
    { giveUps: [giveUp] },
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: '1 webhook was refused and not accepted since: no secret matches. It names no request that waits here: a stranger may be sending it. If the provider has a key whose secret is missing here, add it, then verify it again.',
    },
  ],
  [
    'webhooks that the provider gave up',
    {
      giveUps: [
        { ...giveUp, given_up: true },
        { ...giveUp, given_up: true, request_status: 'IN_QUEUE' },
      ],
    },
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: "2 webhooks were refused and not accepted since: no secret matches. 1 is for our own request, which waits for its result. By the provider's schedule, 2 will not be sent again. The reconciler polls their tracked requests.",
    },
  ],
  [
    'more given-up webhooks than are read',
    { giveUps: Array.from({ length: 200 }, () => ({ ...giveUp, given_up: true })) },
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: 'At least 200 webhooks were refused and not accepted since: no secret matches. They name no request that waits here: a stranger may be sending them. If the provider has a key whose secret is missing here, add it, then verify them again.',
    },
  ],
  [
    'a silent reconciler',
    { reconciler: { ...calm.reconciler, silent: true, last_run: run } },
    {
      severity: 'critical',
      cause: 'reconciler_silent',
      href: '/reconciler',
      text: 'The reconciler has not run since 02:00. Overdue requests that were never polled wait for it.',
    },
  ],
  [
    'a reconciler that never ran',
    { reconciler: { ...calm.reconciler, silent: true }, overdue: 2 },
    {
      severity: 'critical',
      cause: 'reconciler_silent',
      href: '/reconciler',
      text: 'The reconciler has not run for more than 5 min. Overdue requests that were never polled wait for it. 2 requests are overdue.',
    },
  ],
  [
    'a run that failed',
    { reconciler: { ...calm.reconciler, last_run: { ...run, outcome: 'error', error: 'no such table' } } },
    {
      severity: 'warning',
      cause: 'reconciler_failed',
      href: '/reconciler',
      text: 'The last run of the reconciler failed: no such table. The next run tries again.',
    },
  ],
  [
    'a provider that has just stopped answering',
    { failingSources: [{ ...away, failed: 4, detail: 'answered 503' }] },
    {
      severity: 'warning',
      cause: 'provider_unreachable',
      href: '/reconciler',
      text: "The provider has given no usable answer since 02:57 (answered 503). Polls go on: one about every 5 s, and each request within 5 minutes. The first usable answer ends this alarm. Check the provider's status, and that GENERATION_API_URL (https://api.example) is reachable. Nothing is lost: results wait at the provider, and submits wait here. A submit expires after 23.5 h.",
    },
  ],
  [
    'a provider that has not answered for long',
    {
      overdue: 5,
      failingSources: [{ ...away, failing_since: '2026-03-03T22:00:00.000Z', failed: 40 }],
      reconciler: { ...calm.reconciler, backlog: { ...calm.reconciler.backlog, incomplete: 9 } },
    },
    {
      severity: 'critical',
      cause: 'provider_unreachable',
      href: '/reconciler',
      text: "The provider has given no usable answer since 2026-03-03 22:00. 5 requests are overdue and 9 results are not complete. Polls go on: one about every 5 s, and each request within 5 minutes. The first usable answer ends this alarm. Check the provider's status, and that GENERATION_API_URL (https://api.example) is reachable. Nothing is lost: results wait at the provider, and submits wait here. A submit expires after 23.5 h.",
    },
  ],
  [
    'another source that does not answer',
    { overdue: 2, failingSources: [{ ...away, source_name: 'pictures', detail: 'answered 503' }] },
    {
      severity: 'critical',
      cause: 'provider_unreachable:pictures',
      href: '/reconciler',
      text: 'The source pictures has given no usable answer since 02:57 (answered 503). 2 requests are overdue. Polls go on: one about every 5 s, and each request within 5 minutes. The first usable answer ends this alarm. Check its status, and that the URL of its API is reachable.',
    },
  ],
  [
    'a webhook that contradicts the stored result',
    {
      contradictions: {
        open: 1,
        decided: 0,
        last_open: 'a',
        last_decided: null,
      },
    },
    {
      severity: 'warning',
      cause: 'contradiction',
      href: '/requests/a',
      text: "1 webhook contradicts the stored result, which stands until the provider's own result decides.",
    },
  ],
  [
    "webhooks that contradict the provider's own result",
    {
      contradictions: {
        open: 0,
        decided: 3,
        last_open: null,
        last_decided: 'a',
      },
    },
    {
      severity: 'notice',
      cause: 'contradiction_decided',
      href: '/requests?contradiction=true',
      text: "3 webhooks contradict the provider's own result, which stands.",
    },
  ],
  [
    'a scanner',
    {
      strangers: 200,
    },
    {
      severity: 'notice',
      cause: 'strangers',
      href: '/deliveries?view=arrivals&outcome=refused',
      text: '200 arrivals with a missing or wrong signature in 5 minutes. All were refused, and none that is kept names a known request: nothing to do.',
    },
  ],
  [
    'only arrivals that no secret matches, from unknown senders',
    {
      failing: [{ outcome: 'refused', reason: 'no_matching_secret', arrivals: 100, vouched: false }],
    },
    {
      severity: 'warning',
      cause: 'refused:no_matching_secret',
      href: '/parked?reason=no_matching_secret',
      text: '100 of 100 arrivals in the last 5 minutes were refused: no secret matches. They name no request that waits here: a stranger may be sending them. If the provider has a key whose secret is missing here, add it, then verify them again.',
    },
  ],
  [
    'a key that the provider does not accept',
    {
      keys: [{ ...key, blocked_until: '2026-03-04T03:04:40.000Z', blocked_reason: 'unauthorized' }],
      refusedSubmits: [{ keyName: 'live', status: 401, code: 'invalid_api_key', count: 2, lastAt }],
    },
    {
      severity: 'critical',
      cause: 'key_refused:live',
      href: '/keys',
      text: 'The provider refuses the API key live (401 or 403). Its calls rest until 03:04:40. Then one is tried. 2 submits were refused in the last hour. Replace the key if it stays refused.',
    },
  ],
  [
    'a key that must pause',
    { keys: [{ ...key, blocked_until: '2026-03-04T03:04:40.000Z', blocked_reason: 'rate_limited' }] },
    {
      severity: 'warning',
      cause: 'key_blocked:live',
      href: '/keys',
      text: 'The provider asked for a pause: no calls with the key live until 03:04:40. Calls resume automatically.',
    },
  ],
  [
    'a key of another source that must pause',
    {
      keys: [{ ...key, source_name: 'fal', blocked_until: '2026-03-04T03:04:40.000Z', blocked_reason: 'rate_limited' }],
    },
    {
      severity: 'warning',
      cause: 'key_blocked:live',
      href: '/keys',
      text: 'The provider asked for a pause: no calls with the key live of fal until 03:04:40. Calls resume automatically.',
    },
  ],
  [
    'a spent quota',
    { keys: [{ ...key, calls: 100, quota_left: 0 }] },
    {
      severity: 'warning',
      cause: 'quota_spent:live',
      href: '/keys',
      text: "The key live has made 100 calls in the last minute: no more are allowed. Polls and submits wait until some of these calls are a minute old. Nothing is lost. If this lasts, raise FETCH_RATE_PER_MINUTE (now 100), at most to the provider's own limit.",
    },
  ],
  [
    'a spent quota of an account',
    { keys: [{ ...key, calls: 80, quota_left: 0, account_id: 'acme', account_calls: 500, account_limit: 500 }] },
    {
      severity: 'warning',
      cause: 'quota_spent:live',
      href: '/keys',
      text: [
        'The keys of the account acme, among them live, have made 500 calls in the last minute:',
        'no more are allowed. Polls and submits wait until some of these calls are a minute old. Nothing is lost.',
        "If this lasts, raise FETCH_RATE_PER_ACCOUNT_PER_MINUTE, at most to the provider's own limit.",
      ].join(' '),
    },
  ],
  [
    'overdue requests',
    {
      overdue: 2,
      overduePolls: { outcome: 'postponed', detail: 'quota', requests: 2 },
      reconciler: { ...calm.reconciler, backlog: { ...calm.reconciler.backlog, due: 900, minutes: 12 } },
    },
    {
      severity: 'warning',
      cause: 'overdue',
      href: '/requests?overdue=true',
      text: '2 requests are overdue: neither a webhook nor a poll has brought their results. Polls wait, because the calls that polls may use in this minute are used up. Calls that are left are kept for submits. All due polls are made in about 12 minutes. Nothing is lost. If the number grows, raise FETCH_RATE_PER_MINUTE (now 100), or FETCH_RATE_PER_ACCOUNT_PER_MINUTE if Keys shows the account at its limit.',
    },
  ],
  [
    'overdue requests that were not polled yet',
    { overdue: 24, overduePolls: { outcome: null, detail: null, requests: 18 } },
    {
      severity: 'warning',
      cause: 'overdue',
      href: '/requests?overdue=true',
      text: '24 requests are overdue: neither a webhook nor a poll has brought their results. 18 wait for their first poll.',
    },
  ],
  [
    'overdue requests while only keys of the other environment are configured',
    { overdue: 2, overduePolls: { outcome: 'postponed', detail: 'no_key', requests: 2 } },
    {
      severity: 'warning',
      cause: 'overdue',
      href: '/requests?overdue=true',
      text: '2 requests are overdue: neither a webhook nor a poll has brought their results. Last poll of each: postponed: no configured key of its source and environment may make calls for it.',
    },
  ],
  [
    'results that no webhook brought',
    { webhooks: { landed: 5, reported: 0, newest: ['b1', 'b2'], late_seconds: 61, last_webhook_at: null }, overdue: 2 },
    {
      severity: 'warning',
      cause: 'webhooks_missing',
      affected: ['b1', 'b2'],
      href: '/requests?ids=b1,b2',
      text: "No webhook came for the last 5 results of requests that were submitted here: polls brought them. 2 requests are overdue. Webhooks that arrive are for other requests. These 5 results landed up to 61 s after their end, and none is lost. Check that WEBHOOK_PUBLIC_URL leads to this receiver. Send a sample there, which lands as the result of a new request. If none appears, the address probably leads elsewhere. Run this with the receiver's keys in the environment: mediadock trigger ok --url https://hooks.example/webhooks",
    },
  ],
  [
    'submits without an answer while no poll fails',
    { waitingSubmits: 3, stuckSubmits: [stuck] },
    {
      severity: 'critical',
      cause: 'provider_unreachable',
      href: '/reconciler',
      text: '2 submits have waited for the provider for more than a minute, the oldest since 02:50. Last error: connect ECONNREFUSED. Each is repeated within 5 minutes, with the same Idempotency-Key: nothing is lost or charged twice. A submit expires after 23.5 h. If there is no answer, check the status of the provider, and that GENERATION_API_URL (https://api.example) is reachable. If the error is about the key, correct the key.',
    },
  ],
  [
    'a submit without an answer of another source',
    {
      stuckSubmits: [{ ...stuck, source_name: 'pictures', submits: 1, oldest_at: '2026-03-04T02:58:00.000Z' }],
    },
    {
      severity: 'warning',
      cause: 'provider_unreachable:pictures',
      href: '/reconciler',
      text: '1 submit has waited for the source pictures for more than a minute, the oldest since 02:58. Last error: connect ECONNREFUSED. Each is repeated within 5 minutes, with the same Idempotency-Key: nothing is lost or charged twice. A submit expires after 23.5 h. If there is no answer, check the status of the source pictures, and that the URL of its API is reachable. If the error is about the key, correct the key.',
    },
  ],
  [
    'submits that wait for the provider',
    {
      failingSources: [away],
      waitingSubmits: 2,
      stuckSubmits: [stuck],
    },
    {
      severity: 'warning',
      cause: 'provider_unreachable',
      href: '/reconciler',
      text: expect.stringContaining('results wait at the provider, and 2 submits wait here. A submit expires'),
    },
  ],
  [
    'media on a host that MEDIA_HOSTS lacks',
    { foreignMedia: { requests: ['b1', 'b2'], hosts: ['cdn.example'] } },
    {
      severity: 'warning',
      cause: 'foreign_host',
      affected: ['b1', 'b2'],
      href: '/requests?ids=b1,b2',
      text: "MEDIA_HOSTS does not list cdn.example, where media of 2 recent results are. The results landed with these links, but the console does not show the media and the archive does not copy them. If the provider's media are there, add the host to MEDIA_HOSTS and restart each receiver. If not, do not open the links, and ask the provider.",
    },
  ],
  [
    'one contradiction that the provider decided',
    {
      contradictions: {
        ...calm.contradictions,
        decided: 1,
        last_decided: 'b1',
      },
    },
    {
      severity: 'notice',
      cause: 'contradiction_decided',
      href: '/requests/b1',
      text: "1 webhook contradicts the provider's own result, which stands.",
    },
  ],
  [
    'one delivery that Postgres refuses',
    {
      parked: [
        {
          reason: 'landing_failed',
          count: 1,
          first_seen: '',
          last_seen: '',
          errors: [{ message: 'the ledger is closed (P0001)', model: 'vela', count: 1, landed_since: true }],
        },
      ],
    },
    {
      severity: 'warning',
      cause: 'parked:landing_failed',
      href: '/parked?reason=landing_failed',
      text: '1 delivery parked in the last hour: Postgres refused the result of vela. The error: the ledger is closed (P0001). Other results of vela land: look at what differs in this one. The delivery is kept. Fix the cause, then replay.',
    },
  ],
  [
    'parked deliveries',
    { parked: [{ reason: 'key_mismatch', count: 1, first_seen: '', last_seen: '' }] },
    {
      severity: 'warning',
      cause: 'parked:key_mismatch',
      href: '/parked?reason=key_mismatch',
      text: '1 delivery parked in the last hour: key of the other environment.',
    },
  ],
  [
    'results that Postgres refuses to store',
    {
      parked: [
        {
          reason: 'landing_failed',
          count: 3,
          first_seen: '',
          last_seen: '',
          errors: [
            { message: 'the ledger is closed (P0001)', model: 'vela', count: 2, landed_since: true },
            { message: 'value too long', model: null, count: 1, landed_since: false },
          ],
        },
      ],
    },
    {
      severity: 'warning',
      cause: 'parked:landing_failed',
      href: '/parked?reason=landing_failed',
      text: '3 deliveries parked in the last hour: Postgres refused the results of vela. Newest error: the ledger is closed (P0001). 1 other error besides. Other results of vela land: look at what differs in these. The deliveries are kept. Fix the cause, then replay.',
    },
  ],
  [
    'a model of which no result can land',
    {
      parked: [
        {
          reason: 'landing_failed',
          count: 2,
          first_seen: '',
          last_seen: '',
          errors: [{ message: 'the ledger is closed (P0001)', model: 'vela', count: 2, landed_since: false }],
        },
      ],
    },
    {
      severity: 'critical',
      cause: 'parked:landing_failed',
      href: '/parked?reason=landing_failed',
      text: '2 deliveries parked in the last hour: Postgres refused the results of vela. The same error 2 times, the newest: the ledger is closed (P0001). No result of vela has landed since the first of these arrived. The deliveries are kept. Fix the cause, then replay.',
    },
  ],
]

const subscription = {
  name: 'shop',
  retry_hours: 24,
  failing_since: '2026-03-04T02:40:00.000Z',
  last_error: 'it answered 500',
  backlog: 3,
  stop_reason: null,
}
const at = { settings: { retentionDays: 30 }, now }
const subscriptionCases: Case[] = [
  [
    'a subscription that has failed for a while',
    { ofSlices: subscriptionProblems([subscription], at) },
    {
      severity: 'warning',
      cause: 'subscription_failing:shop',
      affected: ['shop'],
      href: '/subscriptions',
      text: 'Changes cannot be posted to the subscription “shop” since 02:40 (it answered 500). 3 changes wait, and posts are retried. Check the service. After 24 h of failures the subscription stops, and its changes wait until an operator resumes it, for at most 30 days (RETENTION_DAYS).',
    },
  ],
  [
    'a subscription that stopped for lack of an answer',
    { ofSlices: subscriptionProblems([{ ...subscription, stop_reason: 'retries_spent' as const }], at) },
    {
      severity: 'critical',
      cause: 'subscription_stopped:shop',
      affected: ['shop'],
      href: '/subscriptions',
      text: 'The subscription “shop” stopped after 24 h of failures (it answered 500). No changes are posted to it. Resume it when its service answers: it continues at its position.',
    },
  ],
]

const archiveCases: Case[] = [
  [
    'an archive whose role fails for the same cause',
    {
      ofSlices: archiveProblems(
        { ...archive, waiting: { ...none, count: 3, requests: ['a'] }, store_trouble: 'x' },
        now,
      ),
      failingRoles: [{ role: 'archive', failures: 3, seconds: 4, error: new StoreError('x') }],
    },
    {
      severity: 'critical',
      cause: 'archive_store',
      count: 3,
      href: '/requests/a',
      text: expect.stringContaining(
        'The error: x. It is unknown when their links end. Results still land. Check the store',
      ),
    },
  ],
  [
    'media that were gone',
    {
      ofSlices: archiveProblems(
        { ...archive, gone: { count: 2, requests: ['b', 'c'], trouble: 'the provider answered 404' } },
        now,
      ),
    },
    {
      severity: 'warning',
      cause: 'media_gone',
      count: 2,
      affected: ['b', 'c'],
      href: '/requests?ids=b,c',
      text: 'The provider no longer serves 2 media that the archive tried to copy in the last hour: the provider answered 404. No copy exists. Submit the requests again if their media are still needed: that costs credits and makes other media.',
    },
  ],
  [
    'media that are not archived for another reason',
    {
      ofSlices: archiveProblems(
        {
          ...archive,
          failed: { count: 1, requests: ['c'], trouble: 'it is larger than 5 bytes (MEDIA_ARCHIVE_MAX_BYTES)' },
        },
        now,
      ),
    },
    {
      severity: 'warning',
      cause: 'media_not_archived',
      count: 1,
      href: '/requests/c',
      text: '1 media was not archived in the last hour. The last reason: it is larger than 5 bytes (MEDIA_ARCHIVE_MAX_BYTES).',
    },
  ],
  [
    'an archive that cannot be written to',
    {
      ofSlices: archiveProblems(
        {
          ...archive,
          waiting: { ...none, count: 3, requests: ['a', 'b'] },
          due_since: '2026-03-04T02:00:00.000Z',
          links_end: '2026-03-04T04:10:00.000Z',
          store_trouble: 'no space left on device (ENOSPC)',
        },
        now,
      ),
    },
    {
      severity: 'critical',
      cause: 'archive_store',
      count: 3,
      href: '/requests?ids=a,b',
      text: 'The archive cannot be written, and 3 media wait for a copy. The error: no space left on device (ENOSPC). The first of their links ends at 04:10, and its media is lost then. Results still land. Make room there; copying then continues.',
    },
  ],
  [
    'media that will be lost',
    {
      ofSlices: archiveProblems(
        { ...archive, expiring: { ...none, count: 2, requests: ['d'] }, expires_first: '2026-03-04T03:10:00.000Z' },
        now,
      ),
    },
    {
      severity: 'critical',
      cause: 'links_expire',
      count: 2,
      href: '/requests/d',
      text: "2 media will be lost unless they are copied before their links end, the first at 03:10. Check the archive's store and the hosts of the media; they are copied first.",
    },
  ],
  [
    'an archive that is behind',
    {
      ofSlices: archiveProblems(
        { ...archive, waiting: { ...none, count: 1, requests: ['a'] }, due_since: '2026-03-04T02:50:00.000Z' },
        now,
      ),
    },
    {
      severity: 'warning',
      cause: 'archive_behind',
      count: 1,
      href: '/requests/a',
      text: 'The archive is behind: 1 media waits to be copied, the oldest due since 02:50.',
    },
  ],
]

describe('the sentences of problems', () => {
  it('are absent while nothing is wrong', () => {
    expect(problemsOf(calm)).toEqual([])
  })

  it.each([...cases, ...subscriptionCases, ...archiveCases])('%s', (_what, numbers, expected) => {
    expect(problemsOf({ ...calm, ...numbers })).toEqual([expect.objectContaining(expected)])
  })

  it.each<[string, Partial<Numbers>]>([
    ['a slow answer or two', { recent: { ...calm.recent, ack_p95_ms: 1999 } }],
    ['an inbox that is just being worked on', { inbox: { pending: 500, oldestSeconds: 60, trouble: null } }],
    [
      'webhooks that failed here and landed in another way',
      {
        giveUps: [
          { ...giveUp, request_status: 'COMPLETED' },
          { ...giveUp, given_up: true, request_status: 'FAILED' },
        ],
      },
    ],
    [
      'an archive that copies',
      {
        ofSlices: archiveProblems(
          { ...archive, waiting: { ...none, count: 500 }, due_since: '2026-03-04T02:59:00.000Z' },
          now,
        ),
      },
    ],
    [
      'submits refused for want of credits that were all submitted again',
      { balances: { refused: [{ keyName: 'live', at: lastAt }], accounts: [] } },
    ],
    ['a change that has just come', { unsequencedSeconds: 60 }],
    [
      'a few results that polls brought',
      { webhooks: { landed: 4, reported: 0, newest: ['b1'], late_seconds: null, last_webhook_at: null } },
    ],
    [
      'results of which one webhook came',
      { webhooks: { landed: 50, reported: 1, newest: ['b1'], late_seconds: null, last_webhook_at: null } },
    ],
    [
      'a role that failed twice',
      { failingRoles: [{ role: 'archive', failures: 2, seconds: 1, error: new Error('x') }] },
    ],
    [
      'a role that lost its connection to Postgres',
      {
        failingRoles: [
          { role: 'archive', failures: 9, seconds: 60, error: Object.assign(new Error('x'), { code: 'ECONNREFUSED' }) },
        ],
      },
    ],
    ['a retired key that has no calls', { keys: [{ ...key, retired: true, quota_left: 0 }] }],
  ])('no problem for %s', (_what, numbers) => {
    expect(problemsOf({ ...calm, ...numbers })).toEqual([])
  })

  it('begin with the worst', () => {
    const numbers = {
      ...calm,
      ...refusedFor('malformed_header', 1),
      overdue: 1,
      inbox: { pending: 1, oldestSeconds: 90, trouble: null },
      parked: [{ reason: 'not_json', count: 1, first_seen: '', last_seen: '' }],
    }
    expect(problemsOf(numbers).map(({ severity, cause }) => `${severity} ${cause}`)).toEqual([
      'critical inbox_old',
      'warning overdue',
      'warning parked:not_json',
      'notice refused:malformed_header',
    ])
  })
})
