import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/** The version of mediadock. package.json is two folders above, both in a checkout and in a package. */
export const { version }: { version: string } = require('../../package.json')
