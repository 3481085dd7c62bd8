import { z } from 'zod'
import { filtersAsTarget } from '../receiver/on-call/audit.ts'
import { replayMany, type ReplayedMany } from '../receiver/api/replay-many.ts'
import { countDeliveries } from '../receiver/queries/deliveries.ts'
import { deliveryFiltersSchema, type DeliveryFilters } from '../receiver/queries/filters.ts'
import { replayDelivery } from '../receiver/replay.ts'
import type { WorkerDeps } from '../receiver/worker.ts'
import { auditedCommand } from './audited-command.ts'
import { cell, filtersOf, readWords } from './listing.ts'
import { withProcessing } from './processing.ts'
import { printJson, printTable, UsageError, type Command } from './usage.ts'

type Options = { dryRun: boolean; interrupted: AbortSignal }

export const replayCommand: Command = {
  help: `
mediadock replay <delivery id>… [--dry-run] [--json]
mediadock replay --state parked [--reason R] [--key-name N] [--since T] [--until T] … [--dry-run] [--json]

Takes ids, or the filters of mediadock deliveries. Safe to repeat: what is known already is
not changed. With --dry-run the changes are shown, and nothing happens. Ctrl-C stops after
what is in progress. Exit 1 when something could not be replayed.

  mediadock replay --state parked --reason key_mismatch --dry-run
  mediadock replay --state parked --reason key_mismatch
  mediadock replay 5d41402a-bc4b-2a76-b971-9d911017c592
`,
  run: async (args, env) => {
    const { words: ids, options } = readWords(args, { filters: deliveryFiltersSchema, switches: ['dry-run', 'json'] })
    const { 'dry-run': dryRun = false, json = false, ...given } = options
    const filters = filtersOf(deliveryFiltersSchema, given)
    const filtered = Object.keys(filters).length > 0
    if (filtered === ids.length > 0) throw new UsageError('replay takes either delivery ids or filters, like --state parked')
    const wrong = ids.find((id) => !z.guid().safeParse(id).success)
    if (wrong !== undefined) throw new UsageError(`"${cell(wrong)}" is not the id of a delivery`)

    return withProcessing(env, async (deps, interrupted) => {
      const how = { dryRun: dryRun === true, interrupted }
      const work = () => (filtered ? replayFiltered(deps, filters, how) : replayEach(deps, ids, how))
      const target = filtered ? filtersAsTarget(filters) : ids.join(',')
      const action = filtered || ids.length > 1 ? 'replay_many' : 'replay'
      const replayed = how.dryRun ? await work() : await auditedCommand({ db: deps.db, action, target, detailOf: countsOf, work })
      if (json) printJson(replayed)
      else print(replayed, how)
      return replayed.failed.length > 0 || interrupted.aborted ? 1 : 0
    })
  },
}

/** What the audit keeps of it. */
function countsOf({ replayed, changes, failed }: ReplayedMany) {
  return { replayed, changed: changes.length, failed: failed.length }
}

async function replayFiltered(deps: WorkerDeps, filters: DeliveryFilters, { dryRun, interrupted }: Options): Promise<ReplayedMany> {
  const count = await countDeliveries(deps.db, filters)
  process.stderr.write(`${count} ${count === 1 ? 'delivery' : 'deliveries'} to replay\n`)
  const onProgress = (done: number) => {
    // On a terminal one line that counts, in a log one line now and then.
    if (process.stderr.isTTY) process.stderr.write(`\r${done} of ${count}${done >= count ? '\n' : ''}`)
    else if (done % 1000 === 0) process.stderr.write(`${done} of ${count}\n`)
  }
  return replayMany(deps, { filters, dryRun, limit: Number.MAX_SAFE_INTEGER, signal: interrupted, onProgress })
}

async function replayEach(deps: WorkerDeps, ids: readonly string[], { dryRun, interrupted }: Options): Promise<ReplayedMany> {
  const all: ReplayedMany = { replayed: 0, changes: [], failed: [], next_cursor: null }
  for (const id of ids) {
    if (interrupted.aborted) break
    const replay = await replayDelivery(deps, id.toLowerCase(), { dryRun })
    if (!replay) all.failed.push({ delivery_id: id, message: 'there is no such delivery' })
    all.replayed += replay?.replayed ?? 0
    all.changes.push(...(replay?.changes ?? []))
  }
  return all
}

function print({ replayed, changes, failed }: ReplayedMany, { dryRun, interrupted }: Options): void {
  if (changes.length > 0) {
    printTable(
      ['request', 'outcome', 'before', 'after', 'media'],
      changes.map(({ request_id, outcome, request, media }) => [
        request_id,
        outcome,
        statusOf(request.before),
        statusOf(request.after),
        `+${media.written.length} -${media.removed.length}`,
      ]),
    )
  }
  for (const { delivery_id, message } of failed) process.stderr.write(`mediadock: ${delivery_id}: ${message}\n`)
  const end = interrupted.aborted ? ', stopped before the end' : ''
  process.stdout.write(`${replayed} ${dryRun ? 'would be replayed' : 'replayed'}, ${changes.length} ${dryRun ? 'would change' : 'changed'}, ${failed.length} failed${end}\n`)
}

function statusOf(row: object | null): string {
  return row !== null && 'status' in row ? cell(String(row.status)) : '-'
}
