/** Reads the bytes of an answer; undefined if there are too many, in which case the rest is not read. */
export async function readBounded(response: Response, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes > maxBytes) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** The seconds that a `Retry-After` asks for; undefined without one, and for one that cannot be read. */
export function retryAfterOf(text: string | null, now: Date): number | undefined {
  if (text === null) return undefined
  if (/^\d{1,9}$/.test(text)) return Number(text)
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now.getTime()) / 1000))
}

/** Returns in words why `fetch` failed. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (!(error.cause instanceof Error)) return error.message
  const { message } = error.cause
  return message === 'other side closed'
    ? 'the connection was closed without an answer'
    : `${error.message}: ${message}`
}
