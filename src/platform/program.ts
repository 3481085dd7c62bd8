/** A program that is up: what to print about it, and how to take it down. */
export type RunningProgram = {
  /** Where it can be reached, by what is there: `{ api: 'http://…' }`. */
  urls: Record<string, string>
  /** From now on `/readyz` answers 503 and each answer ends its connection, while work is still taken: the load balancer needs a moment to notice. */
  retire?: () => void
  /** Stops taking work at once, lets what is in flight end within `graceMs`, then cuts it. */
  stop: (graceMs: number) => Promise<void>
}
