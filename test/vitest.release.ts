import { defineConfig } from 'vitest/config'
import config from './vitest.config.ts'

/** `npm run test:release`: what `npm test` leaves out. */
export default defineConfig({
  // Fewer at once: these tests start programs under load, and some hold time limits.
  test: { ...config.test, include: ['release/**/*.test.ts'], exclude: [], maxWorkers: 2 },
})
