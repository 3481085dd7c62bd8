import { arrivalsCommand } from './arrivals.ts'
import { deliveriesCommand } from './deliveries.ts'
import { migrateCommand } from './migrate.ts'
import { providerCommand } from './provider.ts'
import { reconcileCommand } from './reconcile.ts'
import { replayCommand } from './replay.ts'
import { requestsCommand } from './requests.ts'
import { startCommand } from './start.ts'
import { triggerCommand } from './trigger.ts'
import type { Command } from './usage.ts'

/** Every command by its first word. */
export const commands: Record<string, Command> = {
  start: startCommand,
  migrate: migrateCommand,
  deliveries: deliveriesCommand,
  requests: requestsCommand,
  arrivals: arrivalsCommand,
  replay: replayCommand,
  reconcile: reconcileCommand,
  trigger: triggerCommand,
  provider: providerCommand,
}

export function usage(): string {
  const rows = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`)
  return `mediadock <command> [options]\n\n${rows.join('\n')}\n\nmediadock <command> --help shows the options and examples of one.\n`
}
