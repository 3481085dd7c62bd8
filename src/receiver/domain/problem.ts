export const severities = ['critical', 'warning', 'notice'] as const

export type Problem = {
  severity: (typeof severities)[number]
  /** The problem, its effect and the action, in words for a person. */
  text: string
  /** The kind of problem, or `kind:subject`, for programs. */
  cause: string
  /** The console page that shows the problem and the actions against it. */
  href: string
  /** The present number of arrivals, deliveries, requests or other items concerned. */
  count?: number
  /** The keys, senders, roles, subscriptions or requests concerned. */
  affected?: readonly string[]
}

/** The most ids in one address, which must fit into the text of an issue (storable-text.ts). */
export const maxIdsInAddress = 50

/** The page of the only request, or the list of these requests. */
export function placeOf(requestIds: readonly string[]): Pick<Problem, 'affected' | 'href'> {
  const [only, ...others] = requestIds
  if (only === undefined) return { href: '/requests' }
  const href = others.length === 0 ? `/requests/${only}` : `/requests?ids=${requestIds.join(',')}`
  return { affected: requestIds, href }
}

/** The page of the issue with this cause, for problems that no other page shows. */
export function issueOf(cause: string): string {
  return `/issues?${new URLSearchParams({ cause }).toString()}`
}
