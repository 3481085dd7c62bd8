import { sql, type SQL } from '../../platform/postgres/drizzle.ts'

/**
 * The environment of a key, and of everything that the key signs or tracks. Code uses these words and undefined,
 * statements use these words and null, where the environment is unknown: a key of the default source shows it by its
 * api_key, so a retired key without one has no known environment. Keys of other sources are always live.
 *
 * Tables store it in two other forms. Only this file converts them:
 *
 *   requests.sandbox, requests.signed_sandbox, generations.sandbox   true, false, or null where it is unknown
 *   deliveries.environment                                           the words, or 'unknown'
 *
 * Rows keep what was stored with them. Later changes of the keys do not change it.
 */
export type Environment = 'live' | 'sandbox'

/** Returns the value of a column `sandbox`. */
export function toSandbox(environment: Environment | undefined): boolean | null {
  return environment === undefined ? null : environment === 'sandbox'
}

/** SQL: the environment that a column `sandbox` stores. */
export function environmentIn(sandbox: SQL): SQL {
  return sql`case ${sandbox} when true then 'sandbox' when false then 'live' end`
}

/** Returns the value of `deliveries.environment`. */
export function toStored(environment: Environment | undefined): Environment | 'unknown' {
  return environment ?? 'unknown'
}

/** Returns the environment that `deliveries.environment` stores. */
export function fromStored(stored: Environment | 'unknown'): Environment | undefined {
  return stored === 'unknown' ? undefined : stored
}
