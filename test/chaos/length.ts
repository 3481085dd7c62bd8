/** `npm run chaos` runs the long form; `npm test` the short one, which takes seconds. */
export const long = process.env['CHAOS'] === 'long'

/** How long a stranger is let loose: `CHAOS_SECONDS` of them in the long form, an hour unless it says otherwise. */
export const strangerSeconds = long ? Number(process.env['CHAOS_SECONDS'] ?? 3600) : 4
