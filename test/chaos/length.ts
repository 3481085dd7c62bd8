/** `npm run chaos` runs the long form; `npm test` the short one, which takes seconds. */
export const long = process.env['CHAOS'] === 'long'

/** So many rounds of the table's long form, or the share of them that `CHAOS_SHARE` says: a tenth to try it out. */
export function roundsOf(count: number): number {
  return Math.max(1, Math.round(count * Number(process.env['CHAOS_SHARE'] ?? 1)))
}

/**
 * A time limit, in milliseconds. The long form runs alone and holds it. The short form runs beside other tests, on
 * machines of any speed, and allows three times as long.
 */
export const limitMs = (ms: number) => (long ? ms : 3 * ms)

/** How long a stranger is let loose: `CHAOS_SECONDS` of them in the long form, an hour unless it says otherwise. */
export const strangerSeconds = long ? Number(process.env['CHAOS_SECONDS'] ?? 3600) : 4
