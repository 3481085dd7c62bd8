/** A running program: its addresses, and how to stop it. */
export type RunningProgram = {
  /** Addresses by name: `{ api: 'http://…' }`. */
  urls: Record<string, string>
  /**
   * Makes `/readyz` answer 503 and each answer close its connection. Still accepts work, until the load balancer
   * notices.
   */
  retire?: () => void
  /** Stops accepting work, waits up to `graceMs` for work in progress, then cuts it. */
  stop: (graceMs: number) => Promise<void>
}
