import type { FeedFilter } from '../receiver/feeding/feed-filter.ts'
import { callOnce, isTemporary, type OverHttp } from './api-call.ts'
import { type ChangePage, ReadError, type ReadPage } from './change.ts'
import { errorOf } from './generation-error.ts'

/** Half of what the API allows, so that a proxy that cuts calls after 60 s does not cut it. */
const waitSeconds = 30

/** Reads changes by long polls of `GET /api/feed`. */
export function overHttp(options: OverHttp, filter: FeedFilter = {}): ReadPage {
  // Here, so that a bad address throws at once and is not tried again.
  const { host } = new URL(options.url)
  return async (after, signal) => {
    const query = { after, limit: 200, wait: waitSeconds, ...filter }
    const parameters = new URLSearchParams(Object.entries(query).flatMap(toParameter))
    const { ok, status, answer } = await callOnce(options, `feed?${parameters.toString()}`, { signal })
    if (ok && isPage(answer)) return answer
    const { code, message } = errorOf(answer, status)
    if (isTemporary(status) || answer === undefined) throw new Error(`${host} answers ${status} ${code}: ${message}`)
    throw new ReadError(code, `reading the feed after ${after}: ${message}`)
  }
}

function toParameter([name, value]: [string, unknown]): [string, string][] {
  if (value === undefined) return []
  return [[name, typeof value === 'string' ? value : JSON.stringify(value)]]
}

function isPage(body: unknown): body is ChangePage {
  return typeof body === 'object' && body !== null && 'data' in body && Array.isArray(body.data) && 'head' in body
}
