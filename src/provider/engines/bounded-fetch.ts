import { EngineError } from './engine.ts'

/** The factor from the bytes of outputs to an answer with them: base64 adds a third, and JSON a little. */
export const base64Overhead = 1.4

export type BoundedRequest = {
  url: string
  init: RequestInit
  /** Aborts the whole exchange, including the body. */
  signal: AbortSignal
  maxBytes: number
}

export type BoundedAnswer = { status: number; body: Buffer }

/**
 * Makes one HTTP exchange whose answer takes at most `maxBytes` of memory. Does not follow redirects, which could lead
 * to any host. Failures to connect and incomplete answers are transient EngineErrors.
 */
export async function boundedFetch({ url, init, signal, maxBytes }: BoundedRequest): Promise<BoundedAnswer> {
  try {
    const response = await fetch(url, { ...init, signal, redirect: 'manual' })
    return { status: response.status, body: await readBody(response, maxBytes) }
  } catch (cause) {
    if (cause instanceof EngineError) throw cause
    signal.throwIfAborted()
    throw new EngineError('the image service could not be reached', { cause, transient: true })
  }
}

async function readBody(response: Response, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let total = 0
  for await (const chunk of response.body ?? []) {
    total += chunk.byteLength
    // Leaving the loop cancels the body and its connection.
    if (total > maxBytes) throw new EngineError(`the image service answered with more than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
