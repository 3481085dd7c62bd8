export const severities = ['critical', 'warning', 'notice'] as const

export type Problem = {
  severity: (typeof severities)[number]
  /** The problem, as a sentence for a person. */
  text: string
  /** The kind of problem, as a short name for programs. */
  cause: string
  /** The console page that shows the problem and the actions against it. */
  href: string
  /** The present number of rows or calls concerned. */
  count?: number
  /** The keys or senders concerned. */
  affected?: readonly string[]
}

/** The page of the issue with this cause, for problems that no other page shows. */
export function issueOf(cause: string): string {
  return `/issues?${new URLSearchParams({ cause }).toString()}`
}
