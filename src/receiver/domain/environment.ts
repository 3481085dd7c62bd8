import { sql, type SQL } from '../../platform/postgres/drizzle.ts'

/**
 * The environment of a key, and of everything that the key signs or tracks. Code uses these words and undefined,
 * statements use these words and null, where the environment is unknown: a key of the default source shows it by its
 * api_key, so a retired key without one has no known environment. Keys of other sources are always live.
 *
 * Tables store it in two other forms. This file converts them, and landing/parts-sql.ts where it writes a request:
 *
 *   requests.sandbox, generations.sandbox   of the request, as true, false, or null where it is unknown: stored by
 *                                           tracking, by a hint that made the row, or by the provider's result
 *   requests.signed_sandbox                 of the key that signed or fetched the result, in the same form.
 *                                           Where that is unknown, that of the request
 *   deliveries.environment                  of the key that signed the delivery, as the words, or 'unknown'
 *
 * Readers of a request get one value, `sandbox`: its own, or else that of its result.
 *
 * Rows keep what was stored with them. Later changes of the keys do not change it.
 */
export type Environment = 'live' | 'sandbox'

/** Returns the value of a column `sandbox`. */
export function toSandbox(environment: Environment | undefined): boolean | null {
  return environment === undefined ? null : environment === 'sandbox'
}

/** Returns the environment that a column `sandbox` stores. */
export function fromSandbox(sandbox: boolean | null): Environment | undefined {
  if (sandbox === null) return undefined
  return sandbox ? 'sandbox' : 'live'
}

/** SQL: the value `sandbox` of a row of requests for readers. */
export function sandboxOf(alias: string): SQL {
  return sql.raw(`coalesce(${alias}.sandbox, ${alias}.signed_sandbox)`)
}

/** Returns the value of `deliveries.environment`. */
export function toStored(environment: Environment | undefined): Environment | 'unknown' {
  return environment ?? 'unknown'
}

/** Returns the environment that `deliveries.environment` stores. */
export function fromStored(stored: Environment | 'unknown'): Environment | undefined {
  return stored === 'unknown' ? undefined : stored
}
