import { reconcileOne, recorded, runOf, runOnce } from '../receiver/reconciling/reconciler.ts'
import { requestIdSchema } from '../wire/schemas.ts'
import { auditedCommand } from './audited-command.ts'
import { withProcessing } from './processing.ts'
import { defineCommand, printJson, UsageError } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock reconcile [request_id] [--json]

Polls one request now, or all requests that are due or overdue, within the keys' call budget. Requests
beyond the budget are postponed; a running receiver polls them later. Exits with 1 if a poll failed.

  mediadock reconcile 2f0d6c1e-0000-4000-8000-000000000001
`,
  options: { json: { type: 'boolean' } },
  takesWords: true,
  run: async ({ json }, [given, ...more], env) => {
    if (more.length > 0) throw new UsageError('reconcile takes at most one request_id')
    const requestId = given === undefined ? undefined : requestIdSchema.safeParse(given)
    if (requestId?.success === false) throw new UsageError('the request_id must be a uuid')

    return withProcessing(env, async (deps, interrupted) => {
      const run = await auditedCommand({
        db: deps.db,
        action: requestId === undefined ? 'reconcile_run' : 'reconcile',
        target: requestId?.data,
        detailOf: (counts) => counts,
        work: async () => {
          if (requestId) {
            const ending = await reconcileOne(deps, requestId.data)
            return ending && runOf(ending)
          }
          return (await recorded(deps, 'manual', (counts) => runOnce(deps, interrupted, counts))).run
        },
      })
      if (!run) throw new Error(`request ${requestId?.data} is not tracked, or another transaction holds it`)
      const { scanned, landed, running, notFound, failed, postponed } = run
      const counts = { scanned, landed, running, not_found: notFound, failed, postponed }
      const words = Object.entries(counts).map(([name, count]) => `${name.replace('_', ' ')} ${count}`)
      if (json) printJson(counts)
      else process.stdout.write(`${words.join(', ')}\n`)
      const refused = deps.setAside.ids()
      if (refused.length > 0)
        process.stderr.write(
          `mediadock: Postgres refuses to claim ${refused.length} requests, such as ${refused[0]}: see its log\n`,
        )
      return failed > 0 || refused.length > 0 ? 1 : 0
    })
  },
})
