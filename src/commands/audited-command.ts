import os from 'node:os'
import type { AuditDeps, AuditedAction, Detail } from '../platform/pages/audit.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { audited } from '../receiver/upkeep/audit.ts'

type AuditedCommand<T> = Pick<AuditedAction, 'action' | 'target'> & {
  db: Database
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Runs a command's work and records in the audit who ran it. */
export function auditedCommand<T>({ db, work, ...action }: AuditedCommand<T>): Promise<T> {
  const deps = { db, logger: stderrLogger, clock: () => new Date() }
  return audited(deps, { via: 'cli', actor: actorHere(), ...action }, work)
}

/** Reports that an audit entry could not be written. The work itself is done. */
export const stderrLogger: AuditDeps['logger'] = {
  error: (_fields, message) => void process.stderr.write(`mediadock: ${message}\n`),
}

/** The operator's name on the command line: user@host. */
export function actorHere(): string {
  return `${userName()}@${os.hostname()}`
}

/** Falls back to the user id: in a container, the user may have no name. */
function userName(): string {
  try {
    return os.userInfo().username
  } catch {
    return String(process.getuid?.() ?? 'unknown')
  }
}
