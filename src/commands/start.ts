import { start } from '../start/start.ts'
import { defineCommand, UsageError } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock start [receiver|provider|all]

Starts the receiver, the provider or both (all is the default) and runs until SIGINT or SIGTERM.
Settings come from the environment: docs/settings.md lists them.
`,
  options: {},
  takesWords: true,
  run: async (_options, [what = 'all', ...more], env) => {
    if (more.length > 0) throw new UsageError('start takes one of receiver, provider, all')
    process.exit(await start(what, env))
  },
})
