import { type Dispatcher, request } from 'undici'
import { createAgents } from './agents.ts'
import type { Dialling } from './public-url.ts'
import type { Resolve } from './resolver.ts'

export type GettingOptions = {
  /** Judges a link and each redirect. Literal addresses are judged here, because they are never looked up. */
  judge: (link: string) => Dialling
  resolve: Resolve
  maxRedirects: number
  connectMs: number
  /** The exchange fails after this long without a byte. */
  silenceMs: number
  headers: Record<string, string>
}

/** Headers that are a secret between us and one origin. */
export type Credential = { origin: string; headers: Record<string, string> }

export type OpenedLink =
  /** The caller must read or destroy the body. `withCredential`: the answer is to a request that carried it. */
  { kind: 'opened'; response: Dispatcher.ResponseData; withCredential: boolean } | { kind: 'refused'; why: string }

/** Opens links that others have chosen. Links and redirects that `judge` calls public reach public addresses only. */
export function createGetter({ judge, resolve, maxRedirects, connectMs, silenceMs, headers }: GettingOptions) {
  const { agents, close } = createAgents(resolve, {
    connectMs,
    headersTimeout: silenceMs,
    bodyTimeout: silenceMs,
    // Enough for the headers of a media server.
    maxHeaderSize: 16_384,
    // Per origin.
    connections: 8,
  })

  /**
   * Rejects if the server is unreachable or `signal` aborts. The credential is sent to its origin, until a redirect
   * leads elsewhere. A redirect back does not get it, because another server chose that.
   */
  const open = async (first: string, signal: AbortSignal, credential?: Credential): Promise<OpenedLink> => {
    let link = first
    let withCredential = credential !== undefined
    for (let redirects = 0; redirects <= maxRedirects; redirects += 1) {
      const dialling = judge(link)
      if (dialling.kind === 'refused')
        return { kind: 'refused', why: redirects === 0 ? dialling.why : `it redirects, and ${dialling.why}` }
      withCredential &&= new URL(link).origin === credential?.origin
      const response = await request(link, {
        headers: withCredential ? { ...headers, ...credential?.headers } : headers,
        signal,
        dispatcher: agents[dialling.kind],
      })
      const { location } = response.headers
      if (response.statusCode < 300 || response.statusCode >= 400 || typeof location !== 'string')
        return { kind: 'opened', response, withCredential }
      discard(response)
      if (!URL.canParse(location, link)) return { kind: 'refused', why: 'it redirects to an invalid URL' }
      link = new URL(location, link).href
    }
    return { kind: 'refused', why: `it redirects more than ${maxRedirects} times` }
  }
  return { open, close }
}

/** Ends an exchange without reading the body. */
export function discard({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => {}).destroy()
}
