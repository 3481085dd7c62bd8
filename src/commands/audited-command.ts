import os from 'node:os'
import type { AuditDeps, AuditedAction, Detail } from '../platform/pages/audit.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { audited } from '../receiver/upkeep/audit.ts'

type AuditedCommand<T> = Pick<AuditedAction, 'action' | 'target'> & {
  db: Database
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Does what a command is for, and writes down who did it. */
export function auditedCommand<T>({ db, work, ...action }: AuditedCommand<T>): Promise<T> {
  return audited(
    { db, logger: stderrLogger, clock: () => new Date() },
    { via: 'cli', actor: actorHere(), ...action },
    work,
  )
}

/** One line as all errors have it: the work itself is done. */
export const stderrLogger: AuditDeps['logger'] = {
  error: (_fields, message) => void process.stderr.write(`mediadock: ${message}\n`),
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
