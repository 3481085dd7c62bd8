import { request } from 'undici'
import { storableText } from '../storable-text.ts'
import { createAgents } from './agents.ts'
import type { Dialling } from './public-url.ts'
import type { Resolve } from './resolver.ts'

/** Enough for an ordinary error page. A longer answer is not read to its end, and its connection is closed. */
const maxAnswerBytes = 16_384

export type PostingOptions = {
  /** Judges a URL. Literal addresses are judged here, because they are never looked up. */
  judge: (url: URL) => Dialling
  resolve: Resolve
  /** Limit of the whole exchange: lookup, connecting, sending, and the complete answer. */
  timeoutMs: number
  connectionsPerHost: number
}

export type Post = { url: string; headers: Record<string, string>; body: Buffer }
export type PostOutcome = { ok: boolean; httpStatus: number | undefined; detail: string }

export type Poster = ReturnType<typeof createPoster>

/** Posts to URLs that others have chosen. Follows no redirect (spec, URL rules). */
export function createPoster({ judge, resolve, timeoutMs, connectionsPerHost: connections }: PostingOptions) {
  const limits = { connections, pipelining: 1, headersTimeout: timeoutMs, bodyTimeout: timeoutMs }
  const { agents, close } = createAgents(resolve, { connectMs: timeoutMs, ...limits })

  const post = async ({ url, headers, body }: Post, cut: AbortSignal): Promise<PostOutcome> => {
    const target = new URL(url)
    const dialling = judge(target)
    if (dialling.kind === 'refused')
      return { ok: false, httpStatus: undefined, detail: `not sent: the URL ${dialling.why}` }
    const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), cut])
    let httpStatus: number | undefined
    try {
      const response = await request(target, {
        method: 'POST',
        headers,
        body,
        signal,
        dispatcher: agents[dialling.kind],
      })
      httpStatus = response.statusCode
      const answer = await readSome(response.body)
      const ok = httpStatus >= 200 && httpStatus < 300
      return { ok, httpStatus, detail: answer }
    } catch (error) {
      return { ok: false, httpStatus, detail: reasonOf(error, `no complete answer within ${timeoutMs} ms`) }
    }
  }
  return { post, close }
}

async function readSome(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    // Leaving the loop destroys the stream and its connection.
    if (bytes >= maxAnswerBytes) break
  }
  return storableText(Buffer.concat(chunks).subarray(0, maxAnswerBytes).toString('utf8'))
}

/** Returns why an exchange failed, in words for a page. */
export function reasonOf(error: unknown, onTimeout: string): string {
  if (!(error instanceof Error)) return 'failed for an unknown reason'
  if (error.name === 'TimeoutError') return onTimeout
  const cause = error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error
  return storableText(cause.message || cause.name)
}
