import type { Request, Response } from 'express'
import { z } from 'zod'
import type { ReceiverDeps } from '../program.ts'
import { feedPageSchema, type FeedPage } from '../queries/feed.ts'
import { InvalidFilterError, paging, parseFilters } from '../queries/filters.ts'
import { createFeedStream } from './feed-stream.ts'
import type { FeedWatch } from './feed-watch.ts'
import { abortOf, gone, responses, waitSchemaFor, type Operation } from './operation.ts'

const defaultLimit = 100
/** Clocks of servers differ by less: what is further ahead is no position that anybody was given. */
const maxAheadMs = 60_000

const positionSchema = z
  .string()
  .regex(/^\d{1,16}$/, 'is not a position of the feed')
  .transform(Number)
  .pipe(z.int('is not a position of the feed'))

const querySchema = z.strictObject({
  after: positionSchema.optional().meta({
    description:
      'The position of the last change that is done; without it, or with 0, the oldest that is kept comes first.',
    override: { type: 'integer', minimum: 0 },
  }),
  limit: paging.limit,
  ...waitSchemaFor('Seconds to wait for a change where there is none yet.').shape,
})

/** The changes of results, to be read on from any position. */
export function feedOperations(deps: ReceiverDeps, watch: FeedWatch): Operation[] {
  const { logger, signal } = deps
  const stream = createFeedStream({ watch, logger, signal })
  const document = responses(
    { 200: { description: 'One page', schema: feedPageSchema } },
    'invalid_filter',
    'position_expired',
    'too_many_waiting',
  )
  return [
    {
      method: 'get',
      path: '/feed',
      document: {
        operationId: 'readFeed',
        summary: 'The changes of results, and submits that were refused after their 202, oldest first, each once',
        description:
          'Goes on after a position: no change is skipped or repeated. With `wait`, answers as soon as there is one. With `Accept: text/event-stream` sends each change as an event whose id is its position, and can be sent as Last-Event-ID.',
        requestParams: { query: querySchema },
        responses: {
          ...document,
          200: {
            description: 'One page, or the stream',
            content: { 'application/json': { schema: feedPageSchema }, 'text/event-stream': { schema: z.string() } },
          },
        },
      },
      answer: async (req, res) => {
        const { after = 0, limit = defaultLimit, wait = 0 } = parseFilters(querySchema, req.query)
        if (req.accepts(['json', 'text/event-stream']) === 'text/event-stream')
          return stream(
            res,
            await firstPage(deps, watch, { after: lastEventId(req) ?? after, limit, name: 'Last-Event-ID' }),
          )
        let page = await firstPage(deps, watch, { after, limit, name: 'after' })
        if (page.data.length === 0 && wait > 0)
          page = await untilGrown({ res, watch, signal, page, limit, seconds: wait })
        return res.closed ? undefined : res.json(page)
      },
    },
  ]
}

/** A browser that lost the connection names what it saw last. */
function lastEventId(req: Request): number | undefined {
  const last = req.get('last-event-id')
  if (!last) return undefined
  const parsed = positionSchema.safeParse(last)
  if (!parsed.success) throw new InvalidFilterError('Last-Event-ID', 'is not an id of this stream')
  return parsed.data
}

async function firstPage(
  { clock }: ReceiverDeps,
  watch: FeedWatch,
  { name, ...wanted }: { after: number; limit: number; name: string },
): Promise<FeedPage> {
  const page = await watch.read(wanted)
  if (wanted.after > page.head && wanted.after > (clock().getTime() + maxAheadMs) * 1000)
    throw new InvalidFilterError(name, `is no position that this feed has given: the newest is ${page.head}`)
  return page
}

type Wait = { res: Response; watch: FeedWatch; signal: AbortSignal; page: FeedPage; limit: number; seconds: number }

/** The page as soon as there is something on it; as it is when the time is over, the client is gone, or we stop. */
async function untilGrown({ res, watch, signal, page, limit, seconds }: Wait): Promise<FeedPage> {
  const over = AbortSignal.any([signal, AbortSignal.timeout(seconds * 1000), gone(res)])
  let wake = () => {}
  const { leave } = await watch.join(() => wake())
  try {
    let latest = page
    while (!over.aborted && latest.data.length === 0) {
      const grown = new Promise<void>((resolve) => {
        wake = resolve
      })
      // It may have grown since the last look.
      latest = await watch.read({ after: page.next_after, limit })
      if (latest.data.length === 0) await Promise.race([grown, abortOf(over)])
    }
    return latest
  } finally {
    leave()
  }
}
