import { migrationsOf, programs } from '../config/config.ts'
import { untilReachable } from '../platform/postgres/await-postgres.ts'
import { migrate } from '../platform/postgres/migrate.ts'
import { withDatabase } from './database.ts'
import { defineCommand, UsageError } from './usage.ts'

let printed = ''
function sayOnce(words: string): void {
  if (words !== printed) process.stderr.write(`mediadock: waiting: ${words}\n`)
  printed = words
}

export const command = defineCommand({
  help: `
mediadock migrate [receiver|provider|all]

Applies pending migrations under a lock, so several may run at once. all is the default.
Waits one minute for a Postgres that is unreachable, and ten minutes for locks of a dump or of another
migration. Other statements do not queue behind the wait.
To run migrations as a deployment step of their own, set MIGRATE_ON_START=false.
`,
  options: {},
  takesWords: true,
  run: async (_options, [what = 'all'], env) => {
    const wanted = programs.filter((program) => what === 'all' || what === program)
    if (wanted.length === 0) throw new UsageError('migrate takes one of receiver, provider, all')
    const { signal } = new AbortController()
    const waiting = { waitMs: 60_000, say: sayOnce, signal }
    const locks = { lockWaitMs: 600_000, onWait: sayOnce }
    for (const program of wanted) {
      const applied = await withDatabase(env, program, (url) =>
        untilReachable(() => migrate({ url, ...migrationsOf[program] }, locks), waiting),
      )
      process.stdout.write(`${program}: ${applied === 0 ? 'up to date' : `${applied} applied`}\n`)
    }
    return 0
  },
})
