/** A running program: its addresses, and how to stop it. */
export type RunningProgram = {
  /** Addresses by name: `{ api: 'http://…' }`. */
  urls: Record<string, string>
  /**
   * Makes `/readyz` answer 503 and each answer close its connection. The program still accepts work, because the load
   * balancer notices only later.
   */
  retire?: () => void
  /** Stops accepting work, waits up to `graceMs` for work in progress, then cuts it. */
  stop: (graceMs: number) => Promise<void>
}
