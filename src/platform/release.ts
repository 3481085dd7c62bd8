import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/** Which release of mediadock this is. Its package.json lies two folders above, in a checkout and in a package alike. */
export const { version }: { version: string } = require('../../package.json')
