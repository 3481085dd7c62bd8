export const severities = ['critical', 'warning', 'notice'] as const

export type Problem = {
  severity: (typeof severities)[number]
  /** What is wrong, in words. */
  text: string
  /** A short name of the kind, for programs and tests. */
  cause: string
  /** The page of the console that shows it and acts on it. */
  href: string
  /** How many of what it is about there are now. */
  count?: number
  /** Whom or what it is about: keys, senders. */
  affected?: readonly string[]
}
