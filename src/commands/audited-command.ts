import os from 'node:os'
import { audited, type AuditedAction, type Detail } from '../receiver/upkeep/audit.ts'
import type { Database } from '../runtime/postgres/postgres.ts'

type AuditedCommand<T> = Pick<AuditedAction, 'action' | 'target'> & {
  db: Database
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Does what a command is for, and writes down who did it. */
export function auditedCommand<T>({ db, work, ...action }: AuditedCommand<T>): Promise<T> {
  // One line as all errors have it: the work itself is done.
  const logger = { error: (_fields: object, message: string) => void process.stderr.write(`mediadock: ${message}\n`) }
  return audited({ db, logger, clock: () => new Date() }, { via: 'cli', actor: actorHere(), ...action }, work)
}

/** Who it is on the command line. */
export function actorHere(): string {
  return `${userName()}@${os.hostname()}`
}

/** A container may run as a user that has no name. */
function userName(): string {
  try {
    return os.userInfo().username
  } catch {
    return String(process.getuid?.() ?? 'unknown')
  }
}
