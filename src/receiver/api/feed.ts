import type { Request } from 'express'
import { z } from 'zod'
import type { ReceiverDeps } from '../program.ts'
import { feedPageSchema, type FeedPage, type FeedWanted } from '../queries/feed.ts'
import { InvalidFilterError, paging, parseFilters, feedFilterQuery, toFeedFilter } from '../queries/filters.ts'
import { boundCalls } from './event-stream.ts'
import { createFeedStream } from './feed-stream.ts'
import type { FeedWatch } from './feed-watch.ts'
import { gone, waitSchemaFor, type Operation } from './operation.ts'

const positionSchema = z
  .string()
  .regex(/^\d{1,16}$/, 'is not a position of the feed')
  .transform(Number)
  .pipe(z.int('is not a position of the feed'))

const querySchema = z.strictObject({
  after: positionSchema.optional().meta({
    description:
      'The position of the last processed change. Without it, or with 0, the feed starts at the oldest ' +
      'change that is kept.',
    override: { type: 'integer', minimum: 0 },
  }),
  limit: paging.limit,
  ...feedFilterQuery,
  ...waitSchemaFor('Seconds to wait for a change if there is none after the position.').shape,
})

/** The call that reads the changes of results from any position. */
export function feedOperations(deps: ReceiverDeps, watch: FeedWatch): Operation[] {
  const { logger, signal } = deps
  const stream = createFeedStream({ watch, logger, signal })
  const bounded = boundCalls(1000, 'calls wait for changes')
  return [
    {
      method: 'get',
      path: '/feed',
      operationId: 'readFeed',
      summary: 'Changes of results, and submits that were refused after their 202: oldest first, each once',
      description:
        'Continues after a position: no change is skipped or repeated. Filters select changes, and `next_after` ' +
        'moves past the others. With `wait`, the call waits for the next change. With ' +
        '`Accept: text/event-stream`, each change is an event whose id is its position. Send that id as ' +
        'Last-Event-ID to resume.',
      requestParams: { query: querySchema },
      answers: { 200: { description: 'One page, or the stream', schema: feedPageSchema, streams: true } },
      errors: ['invalid_filter', 'position_expired', 'too_many_waiting'],
      answer: async (req, res) => {
        const { after = 0, limit = 100, wait = 0, ...given } = parseFilters(querySchema, req.query)
        const wanted = { limit, filter: toFeedFilter(given) }
        if (req.accepts(['json', 'text/event-stream']) === 'text/event-stream') {
          const from = { ...wanted, after: lastEventId(req) ?? after }
          return stream(res, await firstPage(deps, watch, { ...from, name: 'Last-Event-ID' }), wanted.filter)
        }
        let page = await firstPage(deps, watch, { ...wanted, after, name: 'after' })
        if (page.data.length === 0 && wait > 0) {
          const over = AbortSignal.any([signal, AbortSignal.timeout(wait * 1000), gone(res)])
          page = await bounded(() => untilGrown({ watch, over, page, wanted }))
        }
        return res.closed ? undefined : res.json(page)
      },
    },
  ]
}

/** Returns the position in Last-Event-ID, which a browser sends after a lost connection. */
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
  { name, ...wanted }: FeedWanted & { name: string },
): Promise<FeedPage> {
  const page = await watch.read(wanted)
  // More than the clock difference between servers. A position further ahead was never assigned.
  if (wanted.after > page.head && wanted.after > (clock().getTime() + 60_000) * 1000)
    throw new InvalidFilterError(name, `is not a position of this feed: the newest is ${page.head}`)
  return page
}

type Wait = { watch: FeedWatch; over: AbortSignal; page: FeedPage; wanted: Pick<FeedWanted, 'limit' | 'filter'> }

/** Waits until the page has a change. Returns it as it is when `over` aborts. */
async function untilGrown({ watch, over, page, wanted }: Wait): Promise<FeedPage> {
  let latest = page
  for await (const _grown of watch.growths(over)) {
    do latest = await watch.read({ ...wanted, after: latest.next_after })
    while (latest.data.length === 0 && latest.next_after < latest.head && !over.aborted)
    if (latest.data.length > 0) break
  }
  return latest
}
