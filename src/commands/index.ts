import type { Entry } from './usage.ts'

/** All commands by their first word. Only the command that runs is loaded. */
export const commands: Record<string, Entry> = {
  start: { summary: 'start the receiver, the provider, or both', load: () => import('./start.ts') },
  migrate: { summary: 'bring the database schema up to date', load: () => import('./migrate.ts') },
  deliveries: { summary: 'list accepted deliveries, newest first', load: () => import('./deliveries.ts') },
  requests: { summary: 'list requests, newest first', load: () => import('./requests.ts') },
  arrivals: { summary: 'list HTTP arrivals, also refused ones, newest first', load: () => import('./arrivals.ts') },
  tail: { summary: 'print new HTTP arrivals as they are logged', load: () => import('./tail.ts') },
  status: { summary: 'print current problems, as on the first page of the console', load: () => import('./status.ts') },
  keys: { summary: 'list keys with their last match and calls left', load: () => import('./keys.ts') },
  verify: { summary: "verify refused webhooks again with today's secrets", load: () => import('./verify.ts') },
  replay: { summary: 'process deliveries again', load: () => import('./replay.ts') },
  reconcile: { summary: 'poll the provider for requests that are due', load: () => import('./reconcile.ts') },
  types: { summary: "print TypeScript types of every model's input", load: () => import('./types.ts') },
  media: { summary: 'remove the archived media of a request', load: () => import('./media.ts') },
  config: { summary: 'check the settings, the database and the keys', load: () => import('./config.ts') },
  trigger: { summary: 'send a signed sample webhook to a receiver', load: () => import('./trigger.ts') },
  provider: { summary: "the provider's developer console, on the command line", load: () => import('./provider.ts') },
}

export function usage(): string {
  const rows = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`)
  return `mediadock <command> [options]

${rows.join('\n')}

mediadock <command> --help shows a command's options and examples. mediadock --version shows the version.
`
}
