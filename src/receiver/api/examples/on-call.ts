import type { Problem } from '../../domain/problem.ts'
import type { AuditEntry } from '../../queries/audit.ts'
import type { Cause } from '../../queries/causes.ts'
import type { Found } from '../../queries/find.ts'
import type { GiveUp } from '../../queries/give-ups.ts'
import type { Issue } from '../../queries/issues.ts'
import type { KeyState } from '../../queries/keys.ts'
import type { Minutes } from '../../queries/minutes.ts'
import type { ReconcilerState, ReconcileRunRow } from '../../queries/reconciler.ts'
import type { Stats } from '../../queries/stats.ts'
import type { CallExamples } from './call-examples.ts'
import * as story from './story.ts'

const { at, arrival, delivery, keyName, model, refused, request, requestId } = story

/** The problem that the refused webhook causes. */
const problem = {
  severity: 'critical',
  text: '2 of 4 arrivals in the last 5 minutes were refused: no secret matches.',
  cause: `refused:${refused.reason}`,
  href: `/parked?reason=${refused.reason}`,
  count: 1,
} satisfies Problem

const openedAt = at('03:02:34.020')
const mutedUntil = at('04:04:00.000')
const actor = '192.0.2.14'

const issue = {
  id: 1,
  ...problem,
  peak: 1,
  samples: [1],
  sample_seconds: 10,
  affected: [],
  opened_at: openedAt,
  seen_at: at('03:02:40.031'),
  worsened_at: null,
  closed_at: null,
  muted_until: null,
  muted_by: null,
  state: 'open',
} satisfies Issue

/** A run that polled the request whose webhook was refused. */
const run = {
  id: 7,
  started_at: at('03:05:00.004'),
  ended_at: at('03:05:00.092'),
  trigger: 'manual',
  outcome: 'ok',
  idle_runs: 0,
  scanned: 1,
  landed: 1,
  running: 0,
  not_found: 0,
  failed: 0,
  postponed: 0,
  rate_limited: 0,
  error: null,
  duration_ms: 88,
} satisfies ReconcileRunRow

const backlog = {
  due: 0,
  minutes: 0,
  incomplete: 0,
  per_minute: 100,
  complete_by: null,
  due_capped: false,
  incomplete_capped: false,
}

const reconciler = {
  silent: false,
  silent_after_seconds: null,
  last_run: run,
  last_working_run: run,
  backlog,
} satisfies ReconcilerState

const auditEntry = {
  id: 1,
  at: at('03:04:00.013'),
  via: 'api',
  actor,
  action: 'mute_issue',
  target: '1',
  detail: { cause: problem.cause, minutes: 60 },
} satisfies AuditEntry

const key = {
  id: keyName,
  name: keyName,
  configured: true,
  source_name: 'generation-queue',
  environment: 'live',
  retired: false,
  fingerprint: '5f2c91d0',
  first_match_at: at('01:14:09.020'),
  last_match_at: story.receivedAt,
  matches: 2,
  still_matches: false,
  calls: 1,
  quota_left: 99,
  account_id: 'acme',
  account_calls: 3,
  account_limit: 500,
  blocked_until: null,
  blocked_reason: null,
} satisfies KeyState

const giveUp = {
  id: refused.webhookId,
  webhook_id: refused.webhookId,
  request_id: refused.requestId,
  request_status: 'IN_QUEUE',
  request_key_name: 'live',
  reason: refused.reason,
  outcome: 'refused',
  attempts_seen: 1,
  attempts_spent: 1,
  first_seen: refused.at,
  last_seen: refused.at,
  next_attempt_at: at('03:03:00.507'),
  last_attempt_at: at('03:18:00.507'),
  given_up: false,
} satisfies GiveUp

const refusedCause = { reason: refused.reason, count: 1, first_seen: refused.at, last_seen: refused.at } satisfies Cause
const parkedCause = {
  reason: 'not_json',
  count: 1,
  first_seen: at('01:14:09.020'),
  last_seen: at('01:14:09.020'),
} satisfies Cause

const found = {
  requests: [request],
  by_metadata: [],
  deliveries: [delivery],
  arrivals: [],
  submits: [
    { id: story.idempotencyKey, state: 'submitted', model, request_id: requestId, created_at: story.submittedAt },
  ],
  quarantined: [],
} satisfies Found

const minutes = {
  since: at('00:03:00.000'),
  until: at('03:03:00.000'),
  step_minutes: 1,
  minutes: [
    {
      minute: at('03:00:00.000'),
      arrivals: { accepted: 1 },
      ack_p50_ms: 4.2,
      ack_p95_ms: 4.2,
      landed: 1,
      landing_p50_seconds: 0.066,
      landing_p95_seconds: 0.066,
      inbox_pending: 0,
      inbox_oldest_seconds: 0,
      overdue: 0,
    },
  ],
  process_starts: [{ started_at: at('00:10:42.785'), host: 'receiver-1', pid: 7, version: '0.1.0' }],
} satisfies Minutes

const stats = {
  pending: 0,
  oldest_seconds: 0,
  parked: 1,
  overdue: 0,
  backlog,
  quota_remaining: { [keyName]: 99 },
  issues: [issue],
  recent: {
    minutes: 5,
    arrivals: 2,
    ack_p95_ms: 4.2,
    by_outcome: [
      { outcome: 'accepted', reason: null, arrivals: 1 },
      { outcome: 'refused', reason: refused.reason, arrivals: 1 },
    ],
  },
  arrivals: [arrival],
  results: [
    {
      request_id: requestId,
      status: 'COMPLETED',
      model,
      media_complete: true,
      error_message: null,
      landed_at: story.landedAt,
      media: [request.first_media],
      media_items: 1,
    },
  ],
} satisfies Stats

export const onCall: Record<string, CallExamples> = {
  listProblems: { 200: { data: [problem] } },
  listKeys: { 200: { data: [key] } },
  listGiveUps: { 200: { data: [giveUp] } },
  listQuarantineCauses: { 200: { data: [refusedCause] } },
  listParkedCauses: { 200: { data: [parkedCause] } },
  search: { 200: found },
  listAudit: { 200: { data: [auditEntry], next_cursor: null } },
  listMinutes: { 200: minutes },
  listIssues: { 200: { data: [issue], next_cursor: null } },
  muteIssue: { body: { minutes: 60 }, 200: { id: issue.id, muted_until: mutedUntil } },
  showReconciler: { 200: reconciler },
  listReconcileRuns: { 200: { data: [run], next_cursor: null } },
  runReconciler: { 200: { state: 'ended', run }, 202: { state: 'running', run: null } },
  showStats: { 200: stats },
}
