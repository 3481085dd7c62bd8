import type { FeedFilter } from '../receiver/feeding/feed-filter.ts'
import type { ChangePage, ReadPage } from './change.ts'
import { ReadError } from './change.ts'
import { errorOf } from './error-of.ts'

export type OverHttp = {
  /** Address of the internal listener, like `http://127.0.0.1:3001`. */
  url: string
  /** INTERNAL_TOKEN, if one is set. */
  token?: string | undefined
  fetch?: typeof globalThis.fetch
}

/**
 * Half of what the API allows: a proxy that cuts calls after 60 s does not cut it. At half, an idle reader asks twice
 * as often.
 */
const waitSeconds = 30

/** Reads changes by long polls of `GET /api/feed`. */
export function overHttp({ url, token, fetch = globalThis.fetch }: OverHttp, filter: FeedFilter = {}): ReadPage {
  const base = new URL('api/feed', url.endsWith('/') ? url : `${url}/`)
  return async (after, signal) => {
    const query = { after, limit: 200, wait: waitSeconds, ...filter }
    base.search = new URLSearchParams(Object.entries(query).flatMap(toParameter)).toString()
    const response = await fetch(base, {
      headers: { accept: 'application/json', ...(token !== undefined && { authorization: `Bearer ${token}` }) },
      // Time for the answer after the wait.
      signal: AbortSignal.any([signal, AbortSignal.timeout(waitSeconds * 1000 + 15_000)]),
    })
    const body: unknown = await response.json()
    if (isPage(body) && response.ok) return body
    const { code, message } = errorOf(body, response.status)
    // Rate limits and server errors are temporary.
    if (response.status >= 500 || response.status === 429)
      throw new Error(`${base.host} answers ${response.status} ${code}: ${message}`)
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
