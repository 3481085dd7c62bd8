// Without imports: the client, which needs none of our packages, reads the feed by the same filter.

/** Which changes of the feed a reader gets. Each member that is given must match. */
export type FeedFilter = {
  key_name?: string | undefined
  model?: string | undefined
  status?: 'COMPLETED' | 'FAILED' | 'CANCELED' | 'REFUSED' | undefined
  sandbox?: boolean | undefined
  /** True: changes that no other change completes. FAILED, CANCELED and REFUSED are complete. */
  complete?: boolean | undefined
  /** Metadata that the request must contain, compared like Postgres's `@>`. */
  metadata?: Record<string, unknown> | undefined
}

/** A filtered page looks through this many changes at most: about 10 ms of Postgres. */
export const maxScanned = 1000

/** Text of SQL: the members of a filter as columns, for `jsonb_to_record(…) as w (…)`. */
export const wantedColumns = 'key_name text, model text, status text, sandbox boolean, complete boolean, metadata jsonb'

/**
 * Text of SQL: the part of the CTE `page` after `from scanned f cross join wanted w`, without its limit. `scanned`
 * holds the next `maxScanned` changes. A page keeps the last of them even where it does not match, with `matched`
 * false: readers continue after it. The look-up is lateral with a limit, so that no statistics make Postgres read all
 * of `results`.
 */
export const matchingPage = `
  left join lateral (
    select key_name, model, sandbox, metadata from mediadock.results where request_id = f.request_id limit 1
  ) r on true
  cross join lateral (
    select coalesce(
      (w.status is null or f.status = w.status)
      and (w.complete is null or (f.media_complete or f.status <> 'COMPLETED') = w.complete)
      and (w.key_name is null or coalesce(r.key_name, f.key_name) = w.key_name)
      and (w.model is null or coalesce(r.model, f.model) = w.model)
      and (w.sandbox is null or coalesce(r.sandbox, f.sandbox) = w.sandbox)
      and (w.metadata is null or coalesce(r.metadata, f.metadata) @> w.metadata), false) as matched
  ) m
  where m.matched or f.position = (select max(position) from scanned)
  order by f.position`

/** Returns true if a filter lets everything through. */
export function isEmpty(filter: FeedFilter): boolean {
  return Object.values(filter).every((member) => member === undefined)
}
