import { programs } from '../config/config.ts'
import { start } from '../start/start.ts'
import { UsageError, type Command } from './usage.ts'

export const startCommand: Command = {
  help: `
mediadock start [receiver|provider|all]

Starts one program or both (all is the default) and runs until SIGINT or SIGTERM.
Settings come from the environment: docs/settings.md lists them.

  mediadock start                 the whole loop on this machine
  mediadock start receiver        only the receiver
`,
  options: {},
  words: [...programs, 'all'],
  run: async ([what = 'all', ...more], env) => {
    if (more.length > 0) throw new UsageError('start takes one of receiver, provider, all')
    process.exit(await start(what, env))
  },
}
