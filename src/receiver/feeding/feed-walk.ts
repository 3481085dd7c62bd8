import { hasTime, maxPageBytes } from '../domain/page-limits.ts'

// No package is imported here, since the client has no dependencies and reads the feed with the same text.

/** A filtered page looks through this many changes at most: about 10 ms of Postgres. */
export const walkedChanges = 1000
/**
 * The media of a result, as `maxOutputItems` in wire/schemas.ts, whose package the client lacks. The limit gives
 * Postgres a good estimate without statistics; half would cut results.
 */
const maxMedia = 100

/**
 * Text of SQL: CTEs that read a page of the feed, after `with recursive asked as (…)`, which has a position `after`,
 * how many changes are wanted as `most`, and a filter as jsonb. `walked` goes from one change to the next, so that it
 * ends with the row that fills the page. Rows that do not match have `matched` false; readers continue after the last
 * one. The first row is the start, with `steps` 0. With `isRead` false, only the places of the changes are read.
 * Look-ups are lateral with a limit, so that no statistics make Postgres read whole tables; `offset 0` makes it
 * evaluate each lateral part only once.
 */
export function feedWalk(columns: string, isRead = true): string {
  return `
    wanted as materialized (
      select a.after, a.most, w.* from asked a cross join jsonb_to_record(a.filter) as w
        (source_name text, key_name text, model text, status text, sandbox boolean, complete boolean, metadata jsonb)
    ),
    walked as (
      select mediadock.still_kept(after) as position, 0 as steps, 0 as found, 0::bigint as bytes, false as matched,
        null::jsonb as result, null::jsonb as media
      from wanted
      union all
      select f.position, p.steps + 1, p.found + o.matched::int,
        p.bytes + case when o.matched
          then octet_length(concat(i.result, i.media, f.error_message, f.metadata)) else 0 end,
        o.matched, i.result, i.media
      from (
        select * from walked cross join wanted
        where found < most and steps < ${walkedChanges} and bytes < ${maxPageBytes} and (steps = 0 or ${hasTime})
      ) p
      cross join lateral (
        select * from mediadock.feed where position > p.position order by position limit 1
      ) f
      left join lateral (
        select ${columns} from mediadock.results r where r.request_id = f.request_id limit 1
      ) r on true
      cross join lateral (
        select coalesce(
          (p.status is null or f.status = p.status)
          and (p.complete is null or (f.media_complete or f.status <> 'COMPLETED') = p.complete)
          and (p.source_name is null or coalesce(r.source_name, f.source_name) = p.source_name)
          and (p.key_name is null or coalesce(r.key_name, f.key_name) = p.key_name)
          and (p.model is null or coalesce(r.model, f.model) = p.model)
          and (p.sandbox is null or coalesce(r.sandbox, f.sandbox) = p.sandbox)
          and (p.metadata is null or coalesce(r.metadata, f.metadata) @> p.metadata), false) as matched
        offset 0
      ) o
      cross join lateral (
        select case when ${isRead} and o.matched then to_jsonb(r) end as result,
          case when ${isRead} and o.matched then (
            select jsonb_agg(to_jsonb(m) - 'request_id' order by m.kind, m.position) from (
              select * from mediadock.media where request_id = f.request_id order by kind, position limit ${maxMedia}) m
          ) end as media
        offset 0
      ) i
    )`
}
