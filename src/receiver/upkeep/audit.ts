import { createAudit } from '../../platform/pages/audit.ts'
import * as onCall from '../domain/on-call-schema.ts'

/** The receiver's audit: replays, verifications, polls, cancellations, changes of subscriptions, issues and media. */
export const audited = createAudit(onCall.audit)

/** Turns filters into the target of an audited action: the query string of the same list. */
export function filtersAsTarget(filters: object): string {
  return new URLSearchParams(
    Object.fromEntries(Object.entries(filters).map(([name, value]) => [name, String(value)])),
  ).toString()
}
