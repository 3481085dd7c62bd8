import { z } from 'zod'
import { errorBody, HttpError, internalError } from '../../platform/http/http.ts'
import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import { replayDelivery } from '../landing/replay.ts'
import { replayMany, type ReplayedMany } from '../on-call/replays.ts'
import type { ReceiverDeps } from '../program.ts'
import { writeWithin } from '../queries/deadline.ts'
import { countDeliveries, deliverySchema, listDeliveries } from '../queries/deliveries.ts'
import { deliveryDetailSchema, findDelivery } from '../queries/delivery-detail.ts'
import { deliveryFiltersSchema, deliveryListSchema, InvalidFilterError, parseFilters } from '../queries/filters.ts'
import { decodeCursor } from '../queries/page.ts'
import { filtersAsTarget } from '../upkeep/audit.ts'
import {
  asHttpError,
  auditedCall,
  gone,
  idPathSchema,
  jsonBody,
  locked,
  unknown,
  uuidParam,
  type Operation,
  readBody,
  filtered,
  onePage,
  shown,
} from './operation.ts'

/** The limit of one call, so that no call takes hours. The caller continues with `next_cursor`. */
const maxReplays = 1000

const dryRun = z
  .boolean()
  .default(false)
  .describe('With true, the answer shows the changes that a replay would make, and nothing changes.')
const replayBodySchema = z.strictObject({ dry_run: dryRun })
const replayManyBodySchema = z.strictObject({
  filter: z.record(z.string(), z.unknown()).meta({ override: { $ref: '#/components/schemas/DeliveryFilters' } }),
  dry_run: dryRun,
  cursor: z.string().max(128).optional().describe('The next_cursor of the previous call.'),
})

const changesSchema = z.array(z.looseObject({})).describe('The rows before and after, for each request that changes.')
const replaySchema = z.object({ replayed: z.int(), changes: changesSchema }).meta({ id: 'Replay' })
const replayManySchema = z
  .object({
    count: z.int().describe('How many deliveries the filter selects.'),
    replayed: z.int(),
    changes: changesSchema,
    failed: z.array(z.object({ delivery_id: z.guid(), message: z.string() })),
    next_cursor: z.string().nullable().describe('The cursor for the next call; null if nothing is left to replay.'),
  })
  .meta({ id: 'ReplayMany' })

/** A replay that fails after the count is sent. Those before it stand, and may be repeated. */
const brokenOffSchema = z
  .object({ count: z.int(), error: z.object({ type: z.string(), code: z.string(), message: z.string() }) })
  .meta({ id: 'ReplayBrokenOff' })

/** The filters as a component of the document, referenced by the body of a replay. */
export const deliveryFiltersComponent = deliveryFiltersSchema.meta({ id: 'DeliveryFilters' })

/** The calls for accepted deliveries, and their replay. */
export function deliveryOperations(deps: ReceiverDeps): Operation[] {
  const list = filtered('/deliveries', {
    operationId: 'listDeliveries',
    summary: 'Accepted deliveries, newest first',
    filters: deliveryListSchema,
    answer: onePage(deliverySchema),
    read: (wanted) => listDeliveries(deps.db, wanted),
  })
  const show = shown('/deliveries/{id}', {
    operationId: 'showDelivery',
    summary: 'One delivery with headers, raw body, verification and attempts',
    requestParams: { path: idPathSchema },
    answer: { description: 'The delivery', schema: deliveryDetailSchema },
    errors: ['not_found'],
    read: (req) => findDelivery(deps.db, uuidParam(req, 'id')),
  })
  // The fixed path comes first: otherwise the router would take it for an id.
  return [list, replayFiltered(deps), show, replayOne(deps)]
}

function replayOne(deps: ReceiverDeps): Operation {
  return {
    method: 'post',
    path: '/deliveries/{id}/replay',
    operationId: 'replayDelivery',
    summary: 'Process a delivery again',
    requestParams: { path: idPathSchema },
    requestBody: jsonBody(replayBodySchema, { dry_run: true }, { required: false }),
    answers: { 200: { description: 'What changed', schema: replaySchema } },
    errors: ['not_found', 'landing_refused', 'request_locked'],
    answer: async (req, res) => {
      const id = uuidParam(req, 'id')
      const { dry_run: dryRun } = await readBody(req, res, replayBodySchema)
      const work = async () => {
        const changes = await replayDelivery(deps.landingDeps, id, { dryRun }).catch(answerFailure)
        return changes && { replayed: 1, changes }
      }
      const detailOf = (done: Replayed | undefined) => done && countsOf(done)
      const audited = () => auditedCall(deps, req, { action: 'replay', target: id, detailOf, work })
      const replay = await writeWithin(dryRun ? work() : audited())
      if (!replay) throw unknown(req)
      res.json(replay)
    },
  }
}

/** A refusal, mostly by a service's own trigger, is an error for the caller to correct. A lock is temporary: 503. */
function answerFailure(error: unknown): never {
  const fault = faultOf(error)
  if (fault === 'server') throw error
  if (fault === 'locked') throw locked()
  const message = `Postgres refuses the rows that this delivery would write: ${postgresMessage(error)}`
  throw new HttpError(409, 'landing_refused', message)
}

type Replayed = Pick<ReplayedMany, 'replayed' | 'changes'>

/** The part of a replay that the audit log records. */
const countsOf = ({ replayed, changes }: Replayed) => ({ replayed, changed: changes.length })

function replayFiltered(deps: ReceiverDeps): Operation {
  return {
    method: 'post',
    path: '/deliveries/replay',
    operationId: 'replayDeliveries',
    summary: 'Process many deliveries again',
    description: `Answers the count, then replays up to ${maxReplays} of the selected deliveries, newest first.`,
    requestBody: jsonBody(replayManyBodySchema, {
      filter: { state: 'processed', key_name: 'live', since: '2026-01-31T03:00:00Z' },
      dry_run: true,
    }),
    answers: {
      200: { description: 'How many, and what changed', schema: z.union([replayManySchema, brokenOffSchema]) },
    },
    errors: ['invalid_filter'],
    answer: async (req, res) => {
      const { filter, dry_run: dryRun, cursor } = await readBody(req, res, replayManyBodySchema)
      const filters = parseFilters(deliveryFiltersSchema, filter)
      if (Object.keys(filters).length === 0)
        throw new InvalidFilterError('filter', 'must contain at least one parameter: an empty filter replays nothing')
      if (cursor !== undefined) decodeCursor(cursor, 'uuid')
      const { db, logger, landingDeps, signal } = deps
      const count = await countDeliveries(db, filters)
      const stop = AbortSignal.any([signal, gone(res)])
      // The client receives the count while the replay is still running.
      res.type('json').write(`{"count":${count},`)
      try {
        const work = () => replayMany(landingDeps, { filters, dryRun, cursor, limit: maxReplays, signal: stop })
        const target = filtersAsTarget(filters)
        const detailOf = (done: ReplayedMany) => ({ ...countsOf(done), failed: done.failed.length })
        const replay = await (dryRun
          ? work()
          : auditedCall(deps, req, { action: 'replay_many', target, detailOf, work }))
        res.end(JSON.stringify(replay).slice(1))
      } catch (error) {
        logger.error({ err: error }, 'replaying many deliveries failed')
        const known = asHttpError(error, logger)
        // The status is sent already, so the error ends the document.
        res.end(JSON.stringify(errorBody(known instanceof HttpError ? known : internalError())).slice(1))
      }
    },
  }
}
