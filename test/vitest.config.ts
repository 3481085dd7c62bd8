import { defineConfig } from 'vitest/config'
import { long } from './chaos/length.ts'
import { LongestFirst } from './support/longest-first.ts'

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ['**/*.test.ts'],
    // `npm run test:release` runs these: they are slow, or test what rarely breaks. `npm run chaos` runs some of them.
    exclude: long ? [] : ['release/**'],
    globalSetup: ['support/global-setup.ts'],
    // These limits only end tests that hang. They hold on a machine that is several times slower than ours.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
    // The programs are imported once in each worker: their caches (fonts, samples) are the same for every test.
    isolate: false,
    // A worker imports many programs and serves many short tests. With room for young objects from the start, and a heap
    // that need not grow in steps, the processor collects garbage for a twentieth of the time instead of a thirteenth.
    execArgv: ['--max-semi-space-size=32', '--min-semi-space-size=16', '--initial-old-space-size=400'],
    // More than there are cores: many tests wait, for a timeout or for a process.
    maxWorkers: 8,
    sequence: { sequencer: LongestFirst },
    // A shared CI machine stalls at times; what fails twice is broken.
    retry: process.env['CI'] ? 1 : 0,
  },
})
