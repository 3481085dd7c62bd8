import { programs } from '../config.ts'
import { migrationsOf } from '../migrations.ts'
import { migrate } from '../runtime/migrate.ts'
import { withDatabase } from './database.ts'
import { UsageError, type Command } from './usage.ts'

export const migrateCommand: Command = {
  help: `
mediadock migrate [receiver|provider|all]

Applies what is new, under a lock: any number may run at once. all is the default.
Set MIGRATE_ON_START=false to leave this to a step of the deployment.

  DATABASE_URL=postgres://… mediadock migrate receiver
`,
  run: async ([what = 'all'], env) => {
    const wanted = programs.filter((program) => what === 'all' || what === program)
    if (wanted.length === 0) throw new UsageError('migrate takes one of receiver, provider, all')
    for (const program of wanted) {
      const applied = await withDatabase(env, program, (url) => migrate({ url, ...migrationsOf[program] }))
      process.stdout.write(`${program}: ${applied === 0 ? 'up to date' : `${applied} applied`}\n`)
    }
    return 0
  },
}
