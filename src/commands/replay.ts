import { z } from 'zod'
import { namedItems } from '../receiver/domain/page-limits.ts'
import type { LandingDeps } from '../receiver/landing/landing-deps.ts'
import { replayDelivery, type Change } from '../receiver/landing/replay.ts'
import { groupFailures, replayMany, type ReplayedMany } from '../receiver/on-call/replays.ts'
import { countDeliveries } from '../receiver/queries/deliveries.ts'
import { deliveryFiltersSchema, type DeliveryFilters } from '../receiver/queries/filters.ts'
import { filtersAsTarget } from '../receiver/upkeep/audit.ts'
import { auditedCommand } from './audited-command.ts'
import { cell, filtersOf, optionsOf } from './listing.ts'
import { withProcessing } from './processing.ts'
import { defineCommand, printJson, printTable, UsageError } from './usage.ts'

type Options = { dryRun: boolean; interrupted: AbortSignal }

export const command = defineCommand({
  help: `
mediadock replay <delivery id>… [--dry-run] [--json]
mediadock replay --state parked [--reason R] [--key-name N] [--since T] [--until T] … [--dry-run] [--json]

Takes delivery ids or the filters of mediadock deliveries. Safe to repeat: a delivery takes effect only
once. --dry-run shows the changes without writing them. Ctrl-C stops after the current step. Exits with
1 if a delivery could not be replayed, or after Ctrl-C.

  mediadock replay --state parked --reason key_mismatch --dry-run
  mediadock replay --state parked --reason key_mismatch
`,
  options: { ...optionsOf(deliveryFiltersSchema), 'dry-run': { type: 'boolean' }, json: { type: 'boolean' } },
  takesWords: true,
  run: async ({ 'dry-run': dryRun = false, json, ...given }, ids, env) => {
    const filters = filtersOf(deliveryFiltersSchema, given)
    const filtered = Object.keys(filters).length > 0
    if (filtered === ids.length > 0)
      throw new UsageError('replay takes either delivery ids or filters, like --state parked')
    const wrong = ids.find((id) => !z.guid().safeParse(id).success)
    if (wrong !== undefined) throw new UsageError(`"${cell(wrong)}" is not the id of a delivery`)

    return withProcessing(env, async (deps, interrupted) => {
      const how = { dryRun, interrupted }
      const work = () => (filtered ? replayFiltered(deps, filters, how) : replayEach(deps, ids, how))
      const target = filtered ? filtersAsTarget(filters) : ids.join(',')
      const action = filtered || ids.length > 1 ? 'replay_many' : 'replay'
      const replayed = how.dryRun
        ? await work()
        : await auditedCommand({ db: deps.db, action, target, detailOf: countsOf, work })
      if (replayed.changes.length < replayed.changed)
        process.stderr.write(
          `mediadock: only the first ${replayed.changes.length} of ${replayed.changed} changes are printed\n`,
        )
      const { bytes: _bytes, changed: _changed, ...shown } = replayed
      if (json) printJson(shown)
      else print(replayed, how)
      return replayed.failed.length > 0 || interrupted.aborted ? 1 : 0
    })
  },
})

function countsOf({ replayed, changed, failed }: Replayed) {
  return { replayed, changed, failed: failed.length }
}

async function replayFiltered(
  deps: LandingDeps,
  filters: DeliveryFilters,
  { dryRun, interrupted }: Options,
): Promise<Replayed> {
  const count = await countDeliveries(deps.db, filters)
  process.stderr.write(`${count} ${count === 1 ? 'delivery' : 'deliveries'} to replay\n`)
  const all = nothing()
  do {
    const cursor = all.next_cursor ?? undefined
    const step = { filters, dryRun, cursor, limit: 1000, signal: interrupted }
    const { replayed, changes, failed, next_cursor } = await replayMany(deps, step)
    add(all, replayed, changes)
    all.failed.push(...failed)
    all.next_cursor = next_cursor
    if (next_cursor !== null) process.stderr.write(`${all.replayed + all.failed.length} of ${count}\n`)
  } while (all.next_cursor !== null && !interrupted.aborted)
  return all
}

type Replayed = ReplayedMany & { changed: number; bytes: number }

function nothing(): Replayed {
  return { replayed: 0, changed: 0, bytes: 0, changes: [], failed: [], next_cursor: null }
}

function add(all: Replayed, replayed: number, changes: readonly Change[]): void {
  all.replayed += replayed
  all.changed += changes.length
  for (const change of changes) {
    all.bytes += JSON.stringify(change).length
    // Bounds the memory for printed changes. Further changes are only counted.
    if (all.bytes <= 16 * 1024 * 1024) all.changes.push(change)
  }
}

async function replayEach(
  deps: LandingDeps,
  ids: readonly string[],
  { dryRun, interrupted }: Options,
): Promise<Replayed> {
  const all = nothing()
  for (const id of ids) {
    if (interrupted.aborted) break
    const changes = await replayDelivery(deps, id.toLowerCase(), { dryRun })
    if (changes) add(all, 1, changes)
    else all.failed.push({ delivery_id: id, message: 'delivery not found' })
  }
  return all
}

function print({ replayed, changes, changed, failed }: Replayed, { dryRun, interrupted }: Options): void {
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
  for (const { message, count, delivery_ids } of groupFailures(failed)) {
    if (count <= namedItems) for (const id of delivery_ids) process.stderr.write(`mediadock: ${id}: ${cell(message)}\n`)
    else
      process.stderr.write(`mediadock: ${count} deliveries, including ${delivery_ids.join(', ')}: ${cell(message)}\n`)
  }
  const end = interrupted.aborted ? ' (interrupted)' : ''
  process.stdout.write(
    `${replayed} ${dryRun ? 'would be replayed' : 'replayed'}, ${changed} ${dryRun ? 'would change' : 'changed'}, ` +
      `${failed.length} failed${end}\n`,
  )
}

function statusOf(row: object | null): string {
  return row !== null && 'status' in row ? cell(String(row.status)) : '-'
}
