import { randomBytes } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { long, roundsOf } from '../chaos/length.ts'
import { inTable } from '../chaos/table.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { withProviderSites } from './support/provider-sites.ts'
import { startWebhookCatcher } from './support/webhook-catcher.ts'

const rounds = roundsOf(200)
const siteCount = 3
const lock = 815

/** In the middle of which statement a provider dies; what it writes then commits without it, or not at all. */
const steps = {
  submit: 'insert on provider.requests for each row',
  run: `update on provider.requests for each row when (old.status = 'IN_QUEUE' and new.status = 'IN_PROGRESS')`,
  progress: `update on provider.requests for each row when (old.status = 'IN_PROGRESS' and new.status = 'IN_PROGRESS')`,
  settle: `update on provider.requests for each row when (old.status = 'IN_PROGRESS' and new.status = 'COMPLETED')`,
  dispatch: `update on provider.deliveries for each row when (new.attempts > old.attempts)`,
  'the end of a dispatch': `update on provider.deliveries for each row when (new.state <> old.state)`,
} as const
const points = Object.keys(steps).flatMap((step) => [
  { step, isKept: true },
  { step, isKept: false },
])

const holding = `
  create table public.armed (step text not null, site text not null);
  create function public.hold() returns trigger language plpgsql as $$
  begin
    if exists (select from public.armed where site = current_user and step = tg_argv[0]) then perform pg_advisory_xact_lock_shared(${lock}); end if;
    return null;
  end $$;
  ${Object.entries(steps)
    .map(([step, when], at) => {
      const [event = '', rest = ''] = when.split(/ (?=for each row)/)
      return `create trigger step_${at} after ${event} ${rest} execute function public.hold('${step}');`
    })
    .join('\n')}`

// chaos.test.ts kills at any moment.
it.skipIf(!long)(
  `a provider that is killed at each step, ${rounds} times, loses nothing and charges nothing twice`,
  { timeout: 1_500_000 },
  async () => {
    await inTable(
      'provider killed at each step of submit, run, settle, dispatch',
      'ledger sums to zero; each webhook id has one content',
      async () => {
        const database = await withTestDatabase(preferredServer)
        const { sql } = database
        await sql.unsafe(holding)
        // Each provider has a separate role, which identifies it in the database.
        const prefix = `site_${randomBytes(4).toString('hex')}`
        const roles = Array.from({ length: siteCount }, (_, at) => `${prefix}_${at}`)
        for (const role of roles) await sql.unsafe(`create role ${role} superuser login password 'of-the-tests'`)
        onTestFinished(async () => {
          for (const role of roles) await sql.unsafe(`drop role if exists ${role}`)
        })
        const urls = roles.map((role) => {
          const url = new URL(database.url)
          url.username = role
          url.password = 'of-the-tests'
          return url.href
        })
        const catcher = await startWebhookCatcher()
        onTestFinished(catcher.close)
        const { sites, accepted, submitting, untilAllEnded, lookAtBooks } = await withProviderSites({
          database,
          urls,
          catcher,
          credits: 1_000_000,
        })
        const killing = new AbortController()
        const clients = submitting({ clients: 4, pauseMs: 1000, signal: killing.signal })
        const booting = sites.map(() => Promise.resolve())
        const holder = await sql.reserve()
        const killed = new Map<string, number>()
        for (let round = 0; round < rounds; round += 1) {
          const { step, isKept } = points[round % points.length] ?? expect.fail()
          const at = (round + Math.floor(round / points.length)) % siteCount
          const victim = sites[at] ?? expect.fail()
          await booting[at]
          await holder`select pg_advisory_lock(${lock})`
          await sql`insert into public.armed values (${step}, ${roles[at] ?? ''})`
          const waiting = await eventually(async () => {
            const rows = await sql<
              { pid: number }[]
            >`select pid from pg_locks where locktype = 'advisory' and objid = ${lock} and not granted`
            return rows.length > 0 && rows
          }, 90_000)
          await victim.kill()
          if (!isKept) for (const { pid } of waiting) await sql`select pg_terminate_backend(${pid})`
          await sql`delete from public.armed`
          await holder`select pg_advisory_unlock(${lock})`
          killed.set(step, (killed.get(step) ?? 0) + 1)
          booting[at] = victim.boot()
        }
        holder.release()
        killing.abort()
        await clients
        await Promise.all(booting)
        await untilAllEnded(400_000)
        const { ledger, lost, doubled, ends } = await lookAtBooks()
        return {
          rounds,
          acknowledged: accepted.size,
          lost,
          doubled,
          silenceMs: undefined,
          measured: `ledger ${ledger.ok ? 'sums to zero' : ledger.problems.join('; ')}; ${[...killed].map(([step, n]) => `${step} ${n}`).join(', ')}`,
          met: ledger.ok && lost === 0 && doubled === 0 && ends.size === 1 && ends.has('COMPLETED'),
        }
      },
    )
  },
)
