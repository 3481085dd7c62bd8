import { setTimeout as delay } from 'node:timers/promises'
import { jsonOf } from '../platform/json-text.ts'
import { jitteredPauseMs } from '../wire/backoff.ts'
import { errorOf, GenerationError } from './generation-error.ts'

export type OverHttp = {
  /** Address of the internal listener, like `http://127.0.0.1:3001`. */
  url: string
  /** INTERNAL_TOKEN, if one is set. */
  token?: string | undefined
  fetch?: typeof globalThis.fetch
}

export type ApiCall = <T>(path: string, options: CallOptions) => Promise<T>
export type CallOptions = { method?: 'GET' | 'POST'; body?: object; signal?: AbortSignal | undefined }

const retry = { baseMs: 250, capMs: 10_000 }

/** Calls the internal listener until it answers or the signal aborts. Throws GenerationError for a 4xx. */
export function apiCalls(options: OverHttp): ApiCall {
  return async <T>(path: string, call: CallOptions): Promise<T> => {
    for (let failures = 1; ; failures += 1) {
      try {
        const { ok, status, answer } = await callOnce(options, path, call)
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the API's schemas define its answers
        if (ok && answer !== undefined) return answer as T
        const { code, message } = errorOf(answer, status)
        if (!isTemporary(status)) throw new GenerationError(code, message)
      } catch (error) {
        if (error instanceof GenerationError || call.signal?.aborted === true) throw error
      }
      await delay(jitteredPauseMs(failures, retry, Math.random), undefined, { signal: call.signal })
    }
  }
}

/** Rate limits and server errors. */
export const isTemporary = (status: number) => status >= 500 || status === 429

/** Makes one call. `answer` is undefined if it is not JSON: then it came from another server at this address. */
export async function callOnce(
  { url, token, fetch = globalThis.fetch }: OverHttp,
  path: string,
  { method = 'GET', body, signal }: CallOptions,
) {
  // Longer than the longest wait of a call, 60 s.
  const deadline = AbortSignal.timeout(75_000)
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
  return { ok: response.ok, status: response.status, answer: jsonOf(await response.text()) }
}
