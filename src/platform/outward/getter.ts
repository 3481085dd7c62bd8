import { Agent, type Dispatcher, request } from 'undici'
import { guardedLookup } from './guarded-lookup.ts'
import type { Dialling } from './poster.ts'
import type { Resolve } from './resolver.ts'

/** Headers of a media server fit into this many bytes. */
const maxHeaderBytes = 16_384
/** An idle connection stays open for the next link of the same host, and no longer than this. */
const idleConnectionMs = 4000
/** Enough to fetch the files of one request side by side. */
const connectionsPerHost = 8

export type GettingOptions = {
  /** Judges a link by its text, and each redirect again. A literal address is never looked up, so it is judged here. */
  judge: (link: string) => Dialling
  resolve: Resolve
  maxRedirects: number
  connectMs: number
  /** Without a byte for this long the exchange fails. */
  silenceMs: number
  headers: Record<string, string>
}

export type OpenedLink =
  /** The caller reads or destroys the body. */
  { kind: 'opened'; response: Dispatcher.ResponseData } | { kind: 'refused'; why: string }

export type Getter = {
  /** Rejects where the server cannot be reached, or `signal` aborts. */
  open: (link: string, signal: AbortSignal) => Promise<OpenedLink>
  close: () => Promise<void>
}

/**
 * Opens links that others have chosen. The address is checked at the moment of
 * dialling, for the link and for each redirect.
 */
export function createGetter({ judge, resolve, maxRedirects, connectMs, silenceMs, headers }: GettingOptions): Getter {
  const limits = {
    headersTimeout: silenceMs,
    bodyTimeout: silenceMs,
    maxHeaderSize: maxHeaderBytes,
    keepAliveMaxTimeout: idleConnectionMs,
    connections: connectionsPerHost,
  }
  const guarded = new Agent({ ...limits, connect: { lookup: guardedLookup(resolve, connectMs), timeout: connectMs } })
  const named = new Agent({ ...limits, connect: { timeout: connectMs } })

  const open: Getter['open'] = async (first, signal) => {
    let link = first
    for (let redirects = 0; redirects <= maxRedirects; redirects += 1) {
      const dialling = judge(link)
      if (dialling.kind === 'refused')
        return { kind: 'refused', why: redirects === 0 ? dialling.why : `it redirects, and ${dialling.why}` }
      const response = await request(link, { headers, signal, dispatcher: dialling.kind === 'named' ? named : guarded })
      const { location } = response.headers
      if (response.statusCode < 300 || response.statusCode >= 400 || typeof location !== 'string')
        return { kind: 'opened', response }
      discard(response)
      if (!URL.canParse(location, link)) return { kind: 'refused', why: 'it redirects to what is no URL' }
      link = new URL(location, link).href
    }
    return { kind: 'refused', why: `it redirects more than ${maxRedirects} times` }
  }
  return { open, close: async () => void (await Promise.all([guarded.destroy(), named.destroy()])) }
}

/** Ends an exchange whose body nobody reads. */
export function discard({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => {}).destroy()
}
