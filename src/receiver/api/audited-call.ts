import type { Request } from 'express'
import { actorOf } from '../../platform/pages/access.ts'
import type { AuditDeps, AuditedAction, Detail } from '../../platform/pages/audit.ts'
import { audited } from '../upkeep/audit.ts'

type AuditedCall<T> = Pick<AuditedAction, 'action' | 'target'> & {
  via?: 'api' | 'console'
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Does the work of a call of the API, or of the console, and records the caller in the audit log. */
export function auditedCall<T>(deps: AuditDeps, req: Request, { work, ...action }: AuditedCall<T>): Promise<T> {
  return audited(deps, { via: 'api', actor: actorOf(req), ...action }, work)
}
