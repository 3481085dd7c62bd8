import { setTimeout as delay } from 'node:timers/promises'
import { jsonOf } from '../platform/json-text.ts'
import { jitteredPauseMs } from '../wire/backoff.ts'
import { errorOf } from './error-of.ts'
import { GenerationError } from './generation-error.ts'
import type { OverHttp } from './over-http.ts'

export type ApiCall = <T>(path: string, options: CallOptions) => Promise<T>
export type CallOptions = { method?: 'GET' | 'POST'; body?: object; signal?: AbortSignal | undefined }

const retry = { baseMs: 250, capMs: 10_000 }

/**
 * Creates the function that calls the internal listener below /api. It repeats a call until it is answered or refused,
 * or until its signal aborts. Throws GenerationError for a refusal (4xx).
 */
export function apiCalls(options: OverHttp): ApiCall {
  return async <T>(path: string, call: CallOptions): Promise<T> => {
    for (let failures = 1; ; failures += 1) {
      try {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the API's schemas define its answers
        return (await once(options, path, call)) as T
      } catch (error) {
        if (error instanceof GenerationError || call.signal?.aborted === true) throw error
      }
      await delay(jitteredPauseMs(failures, retry, Math.random), undefined, { signal: call.signal })
    }
  }
}

/** Makes one call. Throws GenerationError for a refusal, and any other error for a temporary failure. */
async function once(
  { url, token, fetch = globalThis.fetch }: OverHttp,
  path: string,
  { method = 'GET', body, signal }: CallOptions,
): Promise<unknown> {
  // Longer than the longest wait of a call.
  const deadline = AbortSignal.timeout(45_000)
  const response = await fetch(new URL(`api/${path}`, url.endsWith('/') ? url : `${url}/`), {
    method,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
  })
  // An answer that is not JSON came from another server at this address.
  const answer = jsonOf(await response.text())
  if (response.ok && answer !== undefined) return answer
  const { code, message } = errorOf(answer, response.status)
  if (response.status >= 500 || response.status === 429) throw new Error(`${response.status} ${code}: ${message}`)
  throw new GenerationError(code, message)
}
