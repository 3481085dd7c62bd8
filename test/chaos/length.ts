/** `npm run chaos` runs the long form; `npm test` the short one, which takes seconds. */
export const long = process.env['CHAOS'] === 'long'
