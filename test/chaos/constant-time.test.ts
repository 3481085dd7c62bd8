import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { it } from 'vitest'
import { long } from './length.ts'
import { inTable } from './table.ts'

// test/wire/signature.test.ts shows which comparison every secret passes. Times need a machine without other work.
it.skipIf(!long)(
  'the duration of a verification reveals nothing about the signature',
  { timeout: 600_000 },
  async () => {
    await inTable(
      'time of a verification (dudect)',
      '300,000 samples, |t| < 4.5; with `===` of each byte in its place |t| ≥ 4.5',
      async () => {
        const program = path.resolve(import.meta.dirname, 'constant-time.ts')
        // It ends with 1 where a goal is missed, and its figures are there all the same.
        const stdout = await promisify(execFile)(process.execPath, [program]).then(
          (done) => done.stdout,
          (error: { stdout?: string }) => error.stdout ?? '',
        )
        const { samples, t, control, limit } = JSON.parse(stdout)
        return {
          rounds: samples,
          acknowledged: 0,
          lost: 0,
          doubled: 0,
          silenceMs: undefined,
          measured: `t = ${t}; with \`===\` of each byte t = ${control}`,
          met: Math.abs(t) < limit && Math.abs(control) >= limit,
        }
      },
    )
  },
)
