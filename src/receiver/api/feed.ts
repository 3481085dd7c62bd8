import { setTimeout as delay } from 'node:timers/promises'
import type { Request } from 'express'
import { z } from 'zod'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import type { ReceiverDeps } from '../program.ts'
import { feedPageSchema, type FeedPage, type FeedWanted, type FeedItem } from '../queries/feed.ts'
import { digits, InvalidFilterError, paging, parseFilters, feedFilterQuery, toFeedFilter } from '../queries/filters.ts'
import { boundCalls, createEventStreams, type Send } from './event-stream.ts'
import type { FeedWatch } from './feed-watch.ts'
import { gone, waitSchemaFor, type Operation, asHttpError } from './operation.ts'

const notAPosition = 'is not a position of the feed'
const positionSchema = digits(16, notAPosition).pipe(z.int(notAPosition))

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
  const stream = createEventStreams({ max: 100, what: 'streams of the feed', logger, signal })
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
          const from = { ...wanted, after: lastEventId(req) ?? after, name: 'Last-Event-ID' }
          return stream(res, sendFeed(logger, watch, await firstPage(deps, watch, from), wanted.filter))
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

/** Sends changes from a first page on, until the client disconnects, the process stops or the position expires. */
function sendFeed(logger: Logger, watch: FeedWatch, first: FeedPage, filter: FeedFilter): Send {
  /** Reads the next page; undefined if the read failed, the answer to send if the position has expired. */
  const nextPage = async (after: number): Promise<FeedPage | HttpError | undefined> => {
    try {
      return await watch.read({ after, limit: 200, filter })
    } catch (error) {
      const answer = asHttpError(error, logger)
      if (answer instanceof HttpError && answer.status === 410) return answer
      logger.warn({ err: error }, 'reading the feed failed, the stream tries again')
      return undefined
    }
  }
  return async (write, closed) => {
    let after = 0
    const send = async (page: FeedPage) => {
      const text = textOf(page, after)
      if (text !== '') await write(text)
      after = page.next_after
    }
    await send(first)
    for await (const _grown of watch.growths(closed)) {
      // Changes that arrive during this pause share the next read.
      await delay(20, undefined, { signal: closed })
      let page: FeedPage | HttpError | undefined
      do {
        page = await nextPage(after)
        if (page instanceof HttpError) return write(`event: error\ndata: ${JSON.stringify(errorBody(page))}\n\n`)
        if (page === undefined) await delay(1000, undefined, { signal: closed })
        else await send(page)
      } while (!closed.aborted && (page === undefined || after < page.head))
    }
  }
}

function textOf({ data, next_after }: FeedPage, after: number): string {
  if (data.length > 0) return data.map(toEvent).join('')
  // An id without data moves Last-Event-ID over the changes that do not match.
  return next_after > after ? `id: ${next_after}\n\n` : ''
}

/** The events of items, as text that all streams share. */
const events = new WeakMap<FeedItem, string>()

function toEvent(item: FeedItem): string {
  const known = events.get(item)
  if (known !== undefined) return known
  const event = `id: ${item.position}\ndata: ${JSON.stringify(item)}\n\n`
  events.set(item, event)
  return event
}
