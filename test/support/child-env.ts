/** What a Node that a test starts is given of this process: where programs are, and what of ours has been compiled before. */
export const childEnv = { PATH: process.env['PATH'] ?? '', NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '' }
