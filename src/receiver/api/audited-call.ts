import type { Request } from 'express'
import { actorOf } from '../../pages/access.ts'
import { audited, type AuditDeps, type Deed, type Detail } from '../upkeep/audit.ts'

type Doing<T> = Pick<Deed, 'action' | 'target'> & { detailOf: (result: T) => Detail | undefined }

/** Does what a call of the API asks for, and writes down who asked. */
export function auditedCall<T>(deps: AuditDeps, req: Request, doing: Doing<T> & { work: () => Promise<T> }): Promise<T> {
  const { work, ...deed } = doing
  return audited(deps, { via: 'api', actor: actorOf(req), ...deed }, work)
}
