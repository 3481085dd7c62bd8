import type { Request } from 'express'
import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import type { Detail } from '../../platform/pages/audit.ts'
import { problemSchema } from '../domain/problem.ts'
import { muteIssue } from '../on-call/issues.ts'
import { readProblems } from '../on-call/problems.ts'
import { readingOptions, readNow } from '../on-call/reading.ts'
import type { ReceiverDeps } from '../program.ts'
import { auditEntrySchema, auditListSchema, listAudit } from '../queries/audit.ts'
import { causeSchema, readParkedCauses, readQuarantineCauses } from '../queries/causes.ts'
import { readWithin, writeWithin } from '../queries/deadline.ts'
import { find, findFiltersSchema, foundSchema } from '../queries/find.ts'
import { giveUpSchema, listGiveUps } from '../queries/give-ups.ts'
import { issueListSchema, issueSchema, listIssues } from '../queries/issues.ts'
import { keySchema, readKeys } from '../queries/keys.ts'
import { minutesFiltersSchema, minutesSchema, readMinutes } from '../queries/minutes.ts'
import { iso } from '../queries/page.ts'
import { statsSchema, type Stats } from '../queries/stats.ts'
import {
  type Operation,
  auditedCall,
  jsonBody,
  unknown,
  readBody,
  filtered,
  onePage,
  shown,
  whole,
} from './operation.ts'

/** The calls that answer an on-call engineer's first questions. */
export function onCallOperations(deps: ReceiverDeps): Operation[] {
  const { db, clock, settings } = deps
  const { stuckAfterSeconds } = settings
  return [
    showStats(deps),
    whole('/problems', {
      operationId: 'listProblems',
      summary: 'Present problems as sentences, the most severe first',
      item: problemSchema,
      read: async () => readProblems(db, await readingOptions(deps)),
    }),
    whole('/keys', {
      operationId: 'listKeys',
      summary: 'The keys, each with its last match, its calls and those of its account',
      item: keySchema,
      read: () => readingOptions(deps).then((options) => readWithin(db, (tx) => readKeys(tx, options))),
    }),
    whole('/give-ups', {
      operationId: 'listGiveUps',
      summary: 'Webhooks that failed here and were not accepted since, and when the provider gives up',
      item: giveUpSchema,
      read: () => readWithin(db, (tx) => listGiveUps(tx, clock())),
    }),
    whole('/quarantine/causes', {
      operationId: 'listQuarantineCauses',
      summary: 'The reasons why quarantined arrivals were refused',
      item: causeSchema,
      read: () => readWithin(db, readQuarantineCauses),
    }),
    whole('/parked/causes', {
      operationId: 'listParkedCauses',
      summary: 'The reasons why deliveries are parked',
      item: causeSchema,
      read: () => readWithin(db, (tx) => readParkedCauses(tx)),
    }),
    filtered('/search', {
      operationId: 'search',
      summary: 'Find an id of any kind, including those of refused arrivals',
      filters: findFiltersSchema,
      answer: { description: 'The findings, grouped by kind', schema: foundSchema },
      read: (wanted) => find(deps.db, wanted, { now: clock(), stuckAfterSeconds }),
    }),
    filtered('/audit', {
      operationId: 'listAudit',
      summary: 'Who did what from the console, the API and the command line, newest first',
      filters: auditListSchema,
      answer: onePage(auditEntrySchema),
      read: (wanted) => listAudit(deps.db, wanted),
    }),
    filtered('/minutes', {
      operationId: 'listMinutes',
      summary: 'Figures of each minute, for charts, oldest first',
      description: 'The last three hours by default, at most 31 days.',
      filters: minutesFiltersSchema,
      answer: { description: 'The points, and the starts of receivers', schema: minutesSchema },
      read: (wanted) => readMinutes(db, wanted, clock()),
    }),
  ]
}

/** The call that answers what the first page of the console shows. */
function showStats(deps: ReceiverDeps): Operation {
  return shown('/stats', {
    operationId: 'showStats',
    summary: 'Present figures, open issues, and the latest arrivals and results',
    answer: { description: 'The figures', schema: statsSchema },
    read: async (): Promise<Stats> => {
      const now = await readNow(deps.db, await readingOptions(deps))
      const { pending, oldest_seconds, parked, overdue, backlog, keys, issues, recent, arrivals, results } = now
      const configured = keys.filter((key) => key.configured)
      const quota_remaining = Object.fromEntries(configured.map(({ name, quota_left }) => [name, quota_left]))
      return { pending, oldest_seconds, parked, overdue, backlog, quota_remaining, issues, recent, arrivals, results }
    },
  })
}

const muteSchema = z.strictObject({
  minutes: z
    .int()
    .min(0)
    .max(7 * 24 * 60)
    .describe('Minutes from now. 0 ends the mute.'),
})
const mutedSchema = z.object({ id: z.int(), muted_until: z.iso.datetime().nullable() }).meta({ id: 'MutedIssue' })
const issueIdSchema = z.object({ id: z.string().regex(/^\d{1,15}$/) })

/** The calls that list and mute issues. */
export function issueOperations(deps: ReceiverDeps): Operation[] {
  const { db, clock } = deps
  const list = filtered('/issues', {
    operationId: 'listIssues',
    summary: 'Open and closed issues, newest first',
    filters: issueListSchema,
    answer: onePage(issueSchema),
    read: (wanted) => listIssues(db, wanted, clock()),
  })
  const mute: Operation = {
    method: 'post',
    path: '/issues/{id}/mute',
    operationId: 'muteIssue',
    summary: 'Mute an issue for a while: no notifications, unless it becomes more severe',
    requestParams: { path: issueIdSchema },
    requestBody: jsonBody(muteSchema, { minutes: 60 }),
    answers: { 200: { description: 'When the mute ends', schema: mutedSchema } },
    errors: ['not_found'],
    answer: async (req, res) => {
      const { minutes } = await readBody(req, res, muteSchema)
      res.json(await writeWithin(auditedMute(deps, req, { seconds: minutes * 60, detail: { minutes } })))
    },
  }
  return [list, mute]
}

/** Mutes the issue of the path and records it in the audit log. An unknown issue is a 404. */
export async function auditedMute(
  deps: ReceiverDeps,
  req: Request,
  { seconds, detail }: { seconds: number; detail: Detail },
): Promise<z.infer<typeof mutedSchema>> {
  const parsed = issueIdSchema.safeParse(req.params)
  if (!parsed.success) throw unknown(req)
  const id = Number(parsed.data.id)
  const muted = await auditedCall(deps, req, {
    action: 'mute_issue',
    target: parsed.data.id,
    detailOf: (done) => done && { cause: done.cause, ...detail },
    work: () => muteIssue(deps.db, { id, now: deps.time(), seconds, by: actorOf(req) }),
  })
  if (!muted) throw unknown(req)
  return { id, muted_until: iso(muted.muted_until) }
}
