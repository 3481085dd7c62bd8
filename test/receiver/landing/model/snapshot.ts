import { setImmediate as turn } from 'node:timers/promises'
import type { KeyName } from './provider.ts'
import type { World } from './world.ts'

export type RequestRow = {
  request_id: string
  source_name: string | null
  status: string
  output: { images?: object[]; video?: object; audio?: object } | null
  media_complete: boolean
  cost: number | null
  key_name: KeyName | null
  key_source: 'tracked' | 'landed' | null
  sandbox: boolean | null
  signed_sandbox: boolean | null
  landed_at: string | null
  confirmed_at: string | null
  next_poll_at: string | null
  doubt_poll_at: string | null
}

/** Everything that a sequence may have written, at one moment. */
export type Snapshot = {
  requests: RequestRow[]
  media: { request_id: string; kind: string; position: number; url: string }[]
  deliveries: {
    id: string
    webhook_id: string
    request_id: string | null
    status: string | null
    source_name: string | null
    key_name: KeyName | 'engine'
    environment: 'live' | 'sandbox' | 'unknown' | null
    sha: string
    flags: string[]
    parked_reason: string | null
  }[]
  inbox: { delivery_id: string }[]
  attempts: { delivery_id: string; outcome: string }[]
  quarantine: { id: number }[]
}

let flushes = 0

/** Reads it all in one statement, which also flushes the notifications: those of earlier commits have arrived when it answers. */
export async function take({ sql, flushed }: World): Promise<Snapshot> {
  flushes += 1
  const [row] = await sql<[{ snapshot: Snapshot }]>`
    select jsonb_build_object(
      'requests', (select coalesce(jsonb_agg(to_jsonb(r) || jsonb_build_object('output', s.output) order by request_id), '[]')
        from mediadock.requests r join mediadock.results s using (request_id)),
      'media', (select coalesce(jsonb_agg(to_jsonb(m) order by request_id, kind, position), '[]') from mediadock.media m),
      'deliveries', (select coalesce(jsonb_agg(to_jsonb(d) - 'body' - 'headers' || jsonb_build_object('sha', encode(sha256(body), 'hex')) order by id), '[]') from mediadock.deliveries d),
      'inbox', (select coalesce(jsonb_agg(to_jsonb(i) order by delivery_id), '[]') from mediadock.inbox i),
      'attempts', (select coalesce(jsonb_agg(to_jsonb(a) order by delivery_id, attempted_at), '[]') from mediadock.attempts a),
      'quarantine', (select coalesce(jsonb_agg(to_jsonb(q) - 'body' - 'headers' order by id), '[]') from mediadock.quarantine q)
    ) as snapshot, pg_notify('mediadock_results', ${JSON.stringify({ flushed: flushes })})`
  while (flushed() < flushes) await turn()
  return row.snapshot
}

/** Forgets a sequence whole, so that the next one starts from nothing. */
export async function forget({ sql, notices }: World): Promise<void> {
  notices.length = 0
  await sql`with a as (delete from mediadock.requests), b as (delete from mediadock.media), c as (delete from mediadock.deliveries),
    d as (delete from mediadock.inbox), e as (delete from mediadock.attempts), f as (delete from mediadock.quarantine)
    delete from mediadock.call_budgets`
}
