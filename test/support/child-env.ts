/** The environment of a Node process that a test starts: the PATH, and the compile cache. */
export const childEnv = { PATH: process.env['PATH'] ?? '', NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '' }
