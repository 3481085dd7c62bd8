import type { LookupFunction } from 'node:net'
import { isPublicAddress } from './public-address.ts'
import type { Resolve } from './resolver.ts'

/** Looks up a name when connecting. Fails if an address is not public, so later changes gain nothing. */
export function guardedLookup(resolve: Resolve, timeoutMs: number): LookupFunction {
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
