export const severities = ['critical', 'warning', 'notice'] as const

export type Problem = {
  severity: (typeof severities)[number]
  /** What is wrong, its effect and what to do, for a person. */
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

/** The page of the issue with this cause, for problems that no other page shows. */
export function issueOf(cause: string): string {
  return `/issues?${new URLSearchParams({ cause }).toString()}`
}
