import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { it } from 'vitest'
import { long } from './length.ts'
import { inTable } from './table.ts'

const samples = 300_000

// Which comparison stands in the way of every secret is shown by test/wire/signature.test.ts; no machine that has other work can show times.
it.skipIf(!long)(
  'the duration of a verification reveals nothing about the signature',
  { timeout: 300_000 },
  async () => {
    await inTable(
      'time of a verification (dudect)',
      '300,000 samples, |t| < 4.5; with `===` in its place |t| ≥ 4.5',
      async () => {
        const program = path.resolve(import.meta.dirname, 'constant-time.ts')
        // It ends with 1 where a goal is missed, and its figures are there all the same.
        const stdout = await promisify(execFile)(process.execPath, [program, String(samples)]).then(
          (done) => done.stdout,
          (error: { stdout?: string }) => error.stdout ?? '',
        )
        const { t, control, limit } = JSON.parse(stdout)
        return {
          rounds: samples,
          acknowledged: 0,
          lost: 0,
          doubled: 0,
          silenceMs: undefined,
          measured: `t = ${t}; with \`===\` t = ${control}`,
          met: Math.abs(t) < limit && Math.abs(control) >= limit,
        }
      },
    )
  },
)
