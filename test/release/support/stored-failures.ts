import type { TestDatabase } from '../../support/database.ts'

/** Authentic failures whose words take up `bytes`, as they lie there after a burst. */
export async function storeFailures({ sql }: TestDatabase, count: number, bytes: number): Promise<void> {
  // The function makes this session report what it wrote at once, instead of in the middle of a later measurement.
  await sql.unsafe(`
    with reported as materialized (select pg_stat_force_next_flush()),
    made as (
      select gen_random_uuid() as id, gen_random_uuid() as request_id, n from reported, generate_series(1, ${count}) n
    ),
    stored as (
      insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      select id, 'w' || n, request_id, 'ERROR', 'live', now() - interval '1 minute', now() - interval '1 minute', '{}', convert_to(
        '{"request_id":"' || request_id || '","status":"ERROR","error":{"code":"GENERATION_FAILED","message":"' || repeat('a\\"\\u0001 ', ${bytes} / 10) || '"}}', 'UTF8')
      from made
    )
    insert into mediadock.inbox (delivery_id, due_at) select id, now() - interval '1 minute' + n * interval '1 ms' from made`)
}
