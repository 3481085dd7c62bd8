import { defineConfig } from 'vitest/config'
import config from './vitest.config.ts'

/** `npm run test:release`: what `npm test` leaves out. */
export default defineConfig({ test: { ...config.test, include: ['release/**/*.test.ts'], exclude: [] } })
