import type postgres from 'postgres'
import { createPool } from '../src/platform/postgres/postgres.ts'
import { ensurePartitions } from '../src/receiver/upkeep/arrival-partitions.ts'

export type Sizes = { deliveries: number; arrivals: number }

const days = 29
/** Ids that a measurement can ask for, of a delivery in the middle of the tables. */
export type Known = { deliveryId: string; webhookId: string; requestId: string }

/**
 * A month as a busy receiver leaves it, made by the server itself: most of it
 * ordinary, and of each thing that somebody would filter for a few.
 */
export async function fillTables(
  sql: postgres.Sql,
  { url, sizes, say }: { url: string; sizes: Sizes; say: (line: string) => void },
): Promise<void> {
  const { deliveries, arrivals } = sizes
  const duplicates = Math.max(0, Math.floor(arrivals / deliveries) - 2)
  const refused = Math.max(0, arrivals - deliveries * (1 + duplicates))
  await makeDays(url)
  const step = `interval '${(days * 86_400) / deliveries} seconds'`
  const at = (i: string) => `(now() - interval '2 seconds' - (${deliveries} - ${i}) * ${step})`
  const steps: [string, string][] = [
    [
      'deliveries',
      `insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body, flags, parked_reason)
       select (left(encode(sha256(convert_to(webhook_id, 'UTF8')), 'hex'), 12) || left(md5('b' || i), 20))::uuid, webhook_id, request_id,
         case when i % 33 = 0 then 'ERROR' else 'OK' end,
         case when i % 10007 = 0 then 'rare' when i < ${deliveries} / 50 and i % 3 = 0 then 'old' when i % 5 = 0 then 'sandbox' else 'live' end,
         date_trunc('second', at), at,
         jsonb_build_object('host', 'receiver.example', 'user-agent', 'provider/1.0', 'content-type', 'application/json', 'x-service-webhook-id', webhook_id,
           'x-service-timestamp', extract(epoch from at)::bigint::text, 'x-service-signature', '[redacted]', 'content-length', '640'),
         convert_to(json_build_object('request_id', request_id, 'status', 'OK', 'payload', json_build_object('model', 'aurora-image', 'cost', 4,
           'output', json_build_object('images', json_build_array(json_build_object('url', 'https://media.example/' || request_id || '.png?signature=' || repeat(md5('s' || i), 14))))))::text, 'UTF8'),
         case when i % 20011 = 0 then '{contradiction}'::text[] else '{}' end,
         case when i % 1009 = 0 then (array['not_json', 'unknown_shape', 'key_mismatch', 'landing_failed'])[1 + i % 4] end
       from (select i, md5('r' || i)::uuid as request_id, 'wh_' || md5('w' || i) as webhook_id, ${at('i')} as at from generate_series(1, ${deliveries}) i) g`,
    ],
    [
      'media',
      `insert into mediadock.media (request_id, kind, position, url, original_url, width, height)
       select md5('r' || i)::uuid, 'image', 0, 'https://media.example/' || md5('r' || i) || '.png', null, 1024, 768 from generate_series(1, ${deliveries}) i where i % 33 <> 0`,
    ],
    [
      'requests',
      `insert into mediadock.requests (request_id, status, model, key_name, sandbox, output, media_complete, cost, error_code, created_at, completed_at, source, tracked_at, landed_at,
         confirmed_at, polls, polled_at, poll_outcome)
       select md5('r' || i)::uuid, case when i % 33 = 0 then 'FAILED' when i % 2003 = 0 then 'CANCELED' else 'COMPLETED' end,
         case when i % 50021 = 0 then 'seldom-used' else (array['aurora-image', 'vela', 'lyra-audio', 'aurora-image-2'])[1 + i % 4] end,
         case when i % 10007 = 0 then 'rare' when i % 5 = 0 then 'sandbox' else 'live' end, i % 5 = 0,
         jsonb_build_object('images', jsonb_build_array(jsonb_build_object('url', 'https://media.example/' || md5('r' || i) || '.png', 'width', 1024, 'height', 768))),
         true, 4, null, at - interval '40 seconds', at - interval '1 second', case when i % 50 = 0 then 'reconciler' else 'webhook' end,
         at - interval '41 seconds', at + interval '200 milliseconds', at, 1, at, null
       from (select i, ${at('i')} as at from generate_series(1, ${deliveries}) i) g`,
    ],
    [
      'requests that are open',
      `insert into mediadock.requests (request_id, status, model, key_name, tracked_at, next_poll_at)
       select md5('o' || i)::uuid, case when i % 3 = 0 then 'IN_PROGRESS' else 'IN_QUEUE' end, 'vela', 'live', now() - i * interval '3 seconds', now() + interval '1 day' from generate_series(1, 500) i`,
    ],
    [
      'attempts',
      `insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail)
       select id, received_at + interval '200 milliseconds', case when n % 5003 = 0 then 'contradiction' when n % 101 = 0 then 'no_effect' when n % 25013 = 0 then 'retry' else 'landed' end, null
       from (select id, received_at, row_number() over () as n from mediadock.deliveries where parked_reason is null) d`,
    ],
    [
      'inbox',
      `insert into mediadock.inbox (delivery_id, due_at)
       select id, now() + interval '1 day' from mediadock.deliveries where parked_reason is null order by received_at desc nulls last limit 200`,
    ],
    [
      'arrivals that were accepted, and came again',
      `insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, delivery_id, request_id, key_name, remote, bytes, skew_seconds, ack_ms)
       select received_at + again * interval '30 seconds', case when again > 0 then 'duplicate' when parked_reason is not null then 'parked' else 'accepted' end,
         case when again = 0 then parked_reason end, 200, webhook_id, id, request_id, key_name, '192.0.2.10', 640, 1, 2 + random() * 20
       from mediadock.deliveries, generate_series(0, ${duplicates}) as again where received_at + again * interval '30 seconds' < now()`,
    ],
    [
      'arrivals that were refused',
      `insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, delivery_id, remote, bytes, skew_seconds, ack_ms)
       select now() - interval '1 second' - i * interval '${(days * 86_400) / Math.max(1, refused)} seconds',
         case when i % 50 = 0 then 'unavailable' else 'refused' end,
         case when i % 50 = 0 then 'postgres_too_slow' when i % 40 = 1 then 'timestamp_too_old' when i % 99991 = 2 then 'malformed_header' else 'no_matching_secret' end,
         case when i % 50 = 0 then 503 else 401 end, 'wh_' || md5('x' || i / 6), md5('x' || i / 6)::uuid, '198.51.100.7', 640, 1, 1 + random()
       from generate_series(1, ${refused}) i`,
    ],
    [
      'quarantine',
      `insert into mediadock.quarantine (arrived_at, reason, webhook_id, headers, body)
       select arrived_at, reason, webhook_id, '{"content-type": "application/json", "x-service-signature": "t=1,v1=00"}',
         convert_to('{"request_id":"' || md5('q' || id)::uuid || '","status":"OK","padding":"' || repeat(md5('q' || id), 16) || '"}', 'UTF8')
       from mediadock.arrivals where outcome = 'refused' order by arrived_at desc limit 10000`,
    ],
    [
      'polls',
      `insert into mediadock.polls (request_id, polled_at, key_name, outcome, detail) select md5('r' || i)::uuid, ${at('i')}, 'live', 'result', 'COMPLETED' from generate_series(1, ${deliveries}, 10) i`,
    ],
    [
      'minutes',
      `insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds, landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
       select minute, minute + interval '80 seconds', '{"accepted": 24, "duplicate": 70, "refused/no_matching_secret": 23, "unavailable/postgres_too_slow": 1}', 8, 20, 24, 0.1, 0.4, 3, 1, 0
       from generate_series(date_trunc('minute', now()) - interval '${days} days', date_trunc('minute', now()) - interval '2 minutes', interval '1 minute') minute`,
    ],
    [
      'runs, audit, starts',
      `with runs as (
         insert into mediadock.reconcile_runs (started_at, ended_at, trigger, outcome, scanned, landed)
         select now() - (20000 - i) * interval '2 minutes', now() - (20000 - i) * interval '2 minutes' + interval '3 seconds', 'cron', 'ok', 20, 18 from generate_series(1, 20000) i),
       starts as (insert into mediadock.process_starts select now() - i * interval '13 hours', 'host-' || i % 3, 1, '0.1.0' from generate_series(1, 50) i)
       insert into mediadock.audit (at, via, actor, action, target, detail)
       select now() - (50000 - i) * interval '40 seconds', (array['console', 'api', 'cli'])[1 + i % 3], 'somebody-' || i % 7, (array['replay', 'track', 'reconcile'])[1 + i % 3], md5('r' || i)::uuid::text, '{"replayed": 1}'
       from generate_series(1, 50000) i`,
    ],
    [
      'uses of keys',
      `insert into mediadock.key_uses (key_name, first_match_at, last_match_at, matches)
       select key_name, min(received_at), max(received_at), count(*) from mediadock.deliveries group by key_name
       on conflict (key_name) do update set first_match_at = excluded.first_match_at, last_match_at = excluded.last_match_at, matches = excluded.matches`,
    ],
  ]
  for (const [what, statement] of steps) {
    const started = performance.now()
    const { count } = await sql.unsafe(statement)
    say(`${count} rows of ${what} in ${((performance.now() - started) / 1000).toFixed(1)} s`)
  }
  await sql`vacuum analyze`
}

async function makeDays(url: string): Promise<void> {
  const pool = createPool({ url, max: 1 })
  for (let back = 0; back <= days + 1; back += 1)
    await ensurePartitions(pool.db, new Date(Date.now() - back * 86_400_000))
  await pool.close()
}

export async function knownIds(sql: postgres.Sql): Promise<Known> {
  const [row] = await sql<Known[]>`
    select id as "deliveryId", webhook_id as "webhookId", request_id as "requestId" from mediadock.deliveries where received_at < now() - interval '14 days'
    order by received_at desc nulls last limit 1`
  if (!row) throw new Error('the tables are empty')
  return row
}
