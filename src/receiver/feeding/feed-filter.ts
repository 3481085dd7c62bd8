/** Which changes of the feed a reader gets. Each member that is given must match. */
export type FeedFilter = {
  /** A name in SOURCES_FILE, or `generation-queue`. */
  source_name?: string | undefined
  key_name?: string | undefined
  model?: string | undefined
  status?: 'COMPLETED' | 'FAILED' | 'CANCELED' | 'REFUSED' | undefined
  sandbox?: boolean | undefined
  /** True: only changes whose result is complete, as FAILED, CANCELED and REFUSED always are. False: the others. */
  complete?: boolean | undefined
  /** Metadata that the request must contain, compared like Postgres's `@>`. */
  metadata?: Record<string, unknown> | undefined
}
