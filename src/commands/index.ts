import type { Entry } from './usage.ts'

/** All commands by their first word. Only the command that runs is loaded. */
export const commands: Record<string, Entry> = {
  start: {
    summary: 'start the receiver, the provider, or both',
    load: async () => (await import('./start.ts')).startCommand,
  },
  migrate: {
    summary: 'bring the database schema up to date',
    load: async () => (await import('./migrate.ts')).migrateCommand,
  },
  deliveries: {
    summary: 'list accepted deliveries, newest first',
    load: async () => (await import('./deliveries.ts')).deliveriesCommand,
  },
  requests: {
    summary: 'list tracked requests, newest first',
    load: async () => (await import('./requests.ts')).requestsCommand,
  },
  arrivals: {
    summary: 'list HTTP arrivals, also refused ones, newest first',
    load: async () => (await import('./arrivals.ts')).arrivalsCommand,
  },
  tail: {
    summary: 'print new HTTP arrivals as they are logged',
    load: async () => (await import('./tail.ts')).tailCommand,
  },
  status: {
    summary: 'print current problems, as on the first page of the console',
    load: async () => (await import('./status.ts')).statusCommand,
  },
  keys: {
    summary: 'list keys with their last match, calls left and rest',
    load: async () => (await import('./keys.ts')).keysCommand,
  },
  verify: {
    summary: "verify refused webhooks again with today's secrets",
    load: async () => (await import('./verify.ts')).verifyCommand,
  },
  replay: {
    summary: 'process deliveries again',
    load: async () => (await import('./replay.ts')).replayCommand,
  },
  reconcile: {
    summary: 'poll the provider for overdue requests',
    load: async () => (await import('./reconcile.ts')).reconcileCommand,
  },
  subscriptions: {
    summary: 'post each change of a result to a URL: list, add, pause, resume, test',
    load: async () => (await import('./subscriptions.ts')).subscriptionsCommand,
  },
  types: {
    summary: "print TypeScript types of every model's input",
    load: async () => (await import('./types.ts')).typesCommand,
  },
  media: {
    summary: 'remove the archived media of a request',
    load: async () => (await import('./media.ts')).mediaCommand,
  },
  config: {
    summary: 'check the settings, the database and the keys',
    load: async () => (await import('./config.ts')).configCommand,
  },
  trigger: {
    summary: 'send a signed sample webhook to a receiver',
    load: async () => (await import('./trigger.ts')).triggerCommand,
  },
  provider: {
    summary: "the provider's developer console, on the command line",
    load: async () => (await import('./provider.ts')).providerCommand,
  },
  completion: {
    summary: 'print a script that completes these commands in a shell',
    load: async () => (await import('./completion.ts')).completionCommand(commands),
  },
}

export function usage(): string {
  const rows = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`)
  return `mediadock <command> [options]

${rows.join('\n')}

mediadock <command> --help shows a command's options and examples. mediadock --version shows the version.
`
}
