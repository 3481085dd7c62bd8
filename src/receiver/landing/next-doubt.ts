import { sql, type SQL } from '../../platform/postgres/drizzle.ts'

/** Limits extra polls of a request, since the holder of one secret can sign any number of deliveries. */
const doubtIntervalSeconds = 60

/** SQL: the time of the next extra poll of the request `r`. */
export function nextDoubt(now: SQL): SQL {
  return sql`greatest(${now}, r.polled_at + make_interval(secs => ${doubtIntervalSeconds}))`
}
