import type { Request } from 'express'
import { z } from 'zod'
import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import { readingOptions } from '../on-call/reading.ts'
import type { ReceiverDeps } from '../program.ts'
import { readWithin } from '../queries/deadline.ts'
import {
  findReconcileRun,
  listReconcileRuns,
  readReconciler,
  reconcilerSchema,
  reconcileRunSchema,
  runListSchema,
} from '../queries/reconciler.ts'
import { auditedCall, type Operation, filtered, onePage, shown } from './operation.ts'

const startedRunSchema = z
  .object({
    state: z.enum(['ended', 'running']),
    run: reconcileRunSchema.nullable().describe('Null while it runs.'),
  })
  .meta({ id: 'StartedRun' })

/** The calls that show the reconciler and start a run. */
export function reconcilerOperations(deps: ReceiverDeps): Operation[] {
  const { db } = deps
  const show = shown('/reconciler', {
    operationId: 'showReconciler',
    summary: 'The state of the reconciler, and its backlog',
    answer: { description: 'Its state', schema: reconcilerSchema },
    read: async () => {
      const options = await readingOptions(deps)
      return readWithin(db, (tx) => readReconciler(tx, options))
    },
  })
  const runs = filtered('/reconciler/runs', {
    operationId: 'listReconcileRuns',
    summary: 'Runs of the reconciler, newest first',
    filters: runListSchema,
    answer: onePage(reconcileRunSchema),
    read: (wanted) => listReconcileRuns(db, wanted),
  })
  const run: Operation = {
    method: 'post',
    path: '/reconciler/run',
    operationId: 'runReconciler',
    summary: 'Poll everything that is due now',
    answers: {
      200: { description: 'The run has ended', schema: startedRunSchema },
      202: { description: 'It is still running, and will appear in the list of runs', schema: startedRunSchema },
    },
    answer: async (req, res) => {
      const ended = auditedRun(deps, req)
      // The run continues after this wait. The log and the audit record its later failure.
      const first = await withDeadline(ended, 20_000, 'a run').catch((error: unknown) => {
        if (error instanceof DeadlineError) return undefined
        throw error
      })
      const row = first && (await readWithin(db, (tx) => findReconcileRun(tx, first.id)))
      if (first) res.json({ state: 'ended', run: row ?? null })
      else res.status(202).json({ state: 'running', run: null })
    },
  }
  return [show, runs, run]
}

/** Starts a run of the reconciler and records it in the audit log. */
export function auditedRun(deps: ReceiverDeps, req: Request) {
  const work = deps.background.reconcileNow
  return auditedCall(deps, req, { action: 'reconcile_run', detailOf: ({ run }) => run, work })
}
