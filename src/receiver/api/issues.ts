import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import { muteIssue } from '../on-call/issues.ts'
import type { ReceiverDeps } from '../program.ts'
import { issueListSchema, issueSchema, listIssues } from '../queries/issues.ts'
import { iso } from '../queries/page.ts'
import { auditedCall, jsonBody, unknown, type Operation, readBody } from './operation.ts'
import { filtered, onePage } from './reads.ts'

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
  const { db, clock, time } = deps
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
      const parsed = issueIdSchema.safeParse(req.params)
      if (!parsed.success) throw unknown(req)
      const id = Number(parsed.data.id)
      const { minutes } = await readBody(req, res, muteSchema)
      const muted = await auditedCall(deps, req, {
        action: 'mute_issue',
        target: parsed.data.id,
        detailOf: (done) => done && { cause: done.cause, minutes },
        work: () => muteIssue(db, { id, now: time(), seconds: minutes * 60, by: actorOf(req) }),
      })
      if (!muted) throw unknown(req)
      res.json({ id, muted_until: iso(muted.muted_until) })
    },
  }
  return [list, mute]
}
