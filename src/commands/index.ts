import type { Entry } from './usage.ts'

/** Every command by its first word; only the one that is run is loaded. */
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
    summary: 'list HTTP arrivals, refused ones too, newest first',
    load: async () => (await import('./arrivals.ts')).arrivalsCommand,
  },
  tail: {
    summary: 'print HTTP arrivals as they come',
    load: async () => (await import('./tail.ts')).tailCommand,
  },
  status: {
    summary: 'say what is wrong now, as the first page of the console does',
    load: async () => (await import('./status.ts')).statusCommand,
  },
  keys: {
    summary: 'list the keys: which match, rest, or have calls left',
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
    summary: 'poll the provider for what the webhooks missed',
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
    summary: 'print what makes a shell complete all of these',
    load: async () => (await import('./completion.ts')).completionCommand(commands),
  },
}

export function usage(): string {
  const rows = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`)
  return `mediadock <command> [options]\n\n${rows.join('\n')}\n\nmediadock <command> --help shows the options and examples of one, mediadock --version the version.\n`
}
