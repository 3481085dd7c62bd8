import type { LookupFunction } from 'node:net'
import { Agent } from 'undici'
import { isPublicAddress } from './public-url.ts'
import type { Resolve } from './resolver.ts'

/**
 * The longest time that an idle connection stays open for the next call, even if the server allows more. Many servers
 * close theirs after 5 s, and a post on a closing connection fails.
 */
const idleConnectionMs = 4000

/** The agents of a caller of foreign URLs. The one for `public` checks addresses when it connects. */
export function createAgents(resolve: Resolve, { connectMs, ...limits }: Agent.Options & { connectMs: number }) {
  const all = { ...limits, keepAliveMaxTimeout: idleConnectionMs }
  const agents = {
    public: new Agent({ ...all, connect: { lookup: guardedLookup(resolve, connectMs), timeout: connectMs } }),
    named: new Agent({ ...all, connect: { timeout: connectMs } }),
  }
  return { agents, close: async () => void (await Promise.all([agents.public.destroy(), agents.named.destroy()])) }
}

/** Looks up a name when connecting. Fails if an address is not public, so later changes gain nothing. */
function guardedLookup(resolve: Resolve, timeoutMs: number): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, timeoutMs).then(
      (addresses) => {
        const all = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
        const [first] = all
        if (first === undefined) return callback(new Error(`${hostname} does not resolve`), '', 0)
        if (!addresses.every(isPublicAddress))
          return callback(new Error(`${hostname} resolves to an address that is not public`), '', 0)
        return options.all ? callback(null, all) : callback(null, first.address, first.family)
      },
      (error: Error) => callback(error, '', 0),
    )
  }
}
