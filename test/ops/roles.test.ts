import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, inject, it, onTestFinished } from 'vitest'
import { migrationsOf } from '../../src/config/config.ts'
import { createLogger } from '../../src/platform/logger.ts'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { createKey, grantCredits, openProvider } from '../../src/provider/operating/commands.ts'
import { startProvider } from '../../src/provider/program.ts'
import { replayDelivery } from '../../src/receiver/landing/replay.ts'
import { dropDaysBefore } from '../../src/receiver/upkeep/arrival-partitions.ts'
import { pruneOnce } from '../../src/receiver/upkeep/retention.ts'
import { long } from '../chaos/length.ts'
import { mediadockHere } from '../commands/mediadock.ts'
import { testSettings } from '../provider/support/running-provider.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { type PackagedPostgres, startPackagedPostgres } from '../support/packaged-postgres.ts'
import { imageResult, json, startProviderStand } from '../support/provider-stand.ts'
import { quickFolder } from '../support/quick-folder.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, okImage } from '../support/webhooks.ts'
import { printedCommands } from './printed-commands.ts'

const file = path.resolve(import.meta.dirname, '../../ops/roles.sql')
const roles = [
  'mediadock_migrate',
  'mediadock_run',
  'mediadock_read',
  'mediadock_provider_migrate',
  'mediadock_provider_run',
] as const
type Role = (typeof roles)[number]

let server: PackagedPostgres
const databaseUrl = (name: string) => server.url.replace(/postgres$/, name)
const as = (role: Role, name = 'media') =>
  Object.assign(new URL(databaseUrl(name)), { username: role, password: role }).href
const applyRoles = (name: string) =>
  promisify(execFile)(path.join(inject('packagedBinaries'), 'psql'), [
    '--no-psqlrc',
    '--quiet',
    '--set',
    'ON_ERROR_STOP=1',
    '--dbname',
    databaseUrl(name),
    '--file',
    file,
  ])
async function asSuperuser(name: string, statements: readonly string[]): Promise<void> {
  const sql = postgres(databaseUrl(name), { max: 1, onnotice: () => {} })
  for (const statement of statements) await sql.unsafe(statement)
  await sql.end()
}

/** Starts a server. Its database `migrated` got the roles as printed, before the first migration and after it. */
async function startServer(): Promise<void> {
  server = await startPackagedPostgres({
    binaries: inject('packagedBinaries'),
    template: inject('packagedTemplate'),
    settings: { fsync: 'off' },
    within: await quickFolder(),
  })
  await asSuperuser('postgres', ['create database migrated'])
  await applyRoles('migrated')
  await asSuperuser(
    'migrated',
    roles.map((role) => `alter role ${role} password '${role}'`),
  )
  await migrate({ url: as('mediadock_migrate', 'migrated'), ...migrationsOf.receiver })
  await migrate({ url: as('mediadock_provider_migrate', 'migrated'), ...migrationsOf.provider })
  await applyRoles('migrated')
}

/** A copy of that database for one test, named `media`. */
async function migratedByRoles() {
  await asSuperuser('postgres', ['create database media template migrated strategy file_copy'])
  onTestFinished(() => asSuperuser('postgres', ['drop database media with (force)']))
  // A copy lacks the rights and settings that belong to the database itself.
  const apply = () => applyRoles('media')
  await apply()
  const url = databaseUrl('media')
  const owner = postgres(url, { max: 1, onnotice: () => {} })
  onTestFinished(() => owner.end({ timeout: 1 }))
  return { as, owner, url, apply }
}

/** Runs the printed commands of a section of docs/postgres.md, from a folder that has ops/ as a checkout does. */
async function runPrinted(section: string, urls: Record<string, string>): Promise<void> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-roles-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  await fs.symlink(path.dirname(file), path.join(folder, 'ops'))
  const commands = (await printedCommands('postgres.md', section)).join('\n')
  const PATH = `${inject('packagedBinaries')}:${process.env['PATH']}`
  await promisify(execFile)('bash', ['-ec', commands], { cwd: folder, env: { PATH, ...urls } })
}

/** As printed, into a database beside it; answers its URL. */
async function backUpAndRestore(url: string): Promise<string> {
  const restoredUrl = url.replace(/media$/, 'media_restored')
  await runPrinted('Backup and restore', { ADMIN_URL: url })
  return restoredUrl
}

/** Of each table, view, sequence and function the owner, and who may do what. */
async function owned(sql: postgres.Sql) {
  return sql`
    with things as (
      select c.oid::regclass::text as name, c.relowner::regrole::text as owner,
        coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)) as acl
      from pg_class c where c.relnamespace::regnamespace::text in ('mediadock', 'provider') and c.relkind in ('r', 'p', 'v', 'S')
      union all
      select p.oid::regprocedure::text, p.proowner::regrole::text, coalesce(p.proacl, acldefault('f', p.proowner))
      from pg_proc p where p.pronamespace::regnamespace::text in ('mediadock', 'provider')
      union all
      select n.nspname, n.nspowner::regrole::text, coalesce(n.nspacl, acldefault('n', n.nspowner))
      from pg_namespace n where n.nspname in ('mediadock', 'provider')
    )
    select name, owner, array(select a::text from unnest(acl) a order by a::text) as acl from things order by name`
}

const denied = { code: '42501' }

describeOnPackaged('ops/roles.sql', () => {
  beforeAll(startServer, 60_000)
  afterAll(() => server.remove())

  it(
    'lets one role migrate, another run the whole receiver, and a third read results and nothing more',
    { timeout: 120_000 },
    async () => {
      const { as, owner, url } = await migratedByRoles()
      const stand = await startProviderStand()
      onTestFinished(() => stand.close())
      stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
      // Where nothing is new the role may migrate on start as well.
      for (const migrateOnStart of long ? [true, false] : [true]) {
        const receiver = await startTestReceiver({
          followsUp: true,
          databaseUrl: as('mediadock_run'),
          providerUrl: stand.url,
          settings: { migrateOnStart },
        })
        try {
          const { requestId, body } = okImage()
          const webhookId = randomUUID()
          expect((await deliver(receiver.webhookUrl, body, { webhookId })).status).toBe(200)
          expect((await deliver(receiver.webhookUrl, failed().body, { secret: 'whsec_nobody' })).status).toBe(401)
          expect((await deliver(receiver.webhookUrl, Buffer.from('nonsense'))).status).toBe(200)
          await eventually(
            async () =>
              (await owner`select from mediadock.results where request_id = ${requestId} and media_complete`).length >
              0,
          )
          await eventually(
            async () =>
              (await owner`select from pg_inherits where inhparent = 'mediadock.arrivals'::regclass`).length === 9,
          )
          await eventually(async () => (await owner`select from mediadock.quarantine`).length > 0)

          const tracked = randomUUID()
          await owner`insert into mediadock.requests (request_id, key_name, tracked_at) values (${tracked}, 'live', now() - interval '1 hour')`
          expect((await receiver.deps.background.reconcileNow()).run).toMatchObject({ landed: 1 })
          const [delivery] = await owner`select id from mediadock.deliveries where webhook_id = ${webhookId}`
          expect(await replayDelivery(receiver.deps.landingDeps, delivery?.['id'], { dryRun: true })).toBeDefined()
          expect(await replayDelivery(receiver.deps.landingDeps, delivery?.['id'], { dryRun: false })).toBeDefined()
          for (const page of [
            '',
            'deliveries',
            'requests',
            'parked',
            'keys',
            'reconciler',
            'audit',
            'metrics',
            'readyz',
          ]) {
            expect({ page, status: (await fetch(new URL(page, receiver.internalUrl))).status }).toEqual({
              page,
              status: 200,
            })
          }
          const later = { ...receiver.deps, retentionDays: 30, clock: () => new Date(Date.now() + 45 * 86_400_000) }
          expect(await pruneOnce(later, new AbortController().signal)).toMatchObject({
            partitions: 8,
            deliveries: expect.any(Number),
            // Terminal, complete, and the polled one.
            changes: 3,
          })
          expect(await dropDaysBefore(receiver.deps.db, new Date(), new AbortController().signal)).toEqual({
            dropped: 0,
            left: 0,
          })
        } finally {
          await receiver.stop()
        }
      }
      expect(await mediadockHere({ DATABASE_URL: as('mediadock_run') }, 'requests', '--json')).toMatchObject({
        code: 0,
        stderr: '',
      })

      const run = postgres(as('mediadock_run'), { max: 1, onnotice: () => {} })
      onTestFinished(() => run.end({ timeout: 1 }))
      for (const statement of [
        'create table mediadock.mine (n int)',
        'drop table mediadock.media',
        'alter table mediadock.requests add column mine int',
        "insert into mediadock.migrations (hash) values ('x')",
        'select from provider.requests',
        'create schema mine',
      ]) {
        await expect(run.unsafe(statement), statement).rejects.toMatchObject(denied)
      }

      const read = postgres(as('mediadock_read'), { max: 1, onnotice: () => {} })
      onTestFinished(() => read.end({ timeout: 1 }))
      expect(
        (await read`select r.request_id, m.url from mediadock.results r join mediadock.media m using (request_id)`)
          .length,
      ).toBeGreaterThan(0)
      // All of the feed has been pruned above.
      expect(
        await read`select position from mediadock.feed where position > (select mediadock.still_kept(0)) order by position`,
      ).toHaveLength(0)
      await expect(read`select mediadock.still_kept(1)`).rejects.toMatchObject({ code: 'MD002' })
      await read`insert into mediadock.feed_consumers (name) values ('shop')`
      await read`update mediadock.feed_consumers set position = 1 where name = 'shop'`
      for (const statement of [
        ...[
          'requests',
          'deliveries',
          'inbox',
          'changes',
          'feed_entries',
          'arrivals',
          'quarantine',
          'audit',
          'migrations',
        ].map((table) => `select from mediadock.${table}`),
        'delete from mediadock.media',
        "update mediadock.results set status = 'FAILED'",
        'create table mediadock.mine (n int)',
        "select mediadock.drop_arrival_day('2030-01-01')",
        'select mediadock.sequence_changes(null, 1)',
        'delete from mediadock.feed',
        "select mediadock.make_arrival_day('2030-01-01')",
      ]) {
        await expect(read.unsafe(statement), statement).rejects.toMatchObject(denied)
      }

      // A restore keeps owners. Functions that run as their owner must not run as a superuser.
      const restored = postgres(await backUpAndRestore(url), { max: 1, onnotice: () => {} })
      onTestFinished(() => restored.end({ timeout: 1 }))
      expect(await owned(restored)).toEqual(await owned(owner))
    },
  )

  // Short: the test above restores a backup, which keeps owners and rights in the same way.
  it.runIf(long)('moves to a new server by the printed commands, with every owner and right', async () => {
    const { owner, url } = await migratedByRoles()
    const next = await withPackagedPostgres({ settings: { fsync: 'off' } })
    await runPrinted('Move to a new server', { ADMIN_URL: url.replace(/media$/, 'postgres'), NEW_ADMIN_URL: next.url })
    const moved = postgres(next.url.replace(/postgres$/, 'media'), { max: 1, onnotice: () => {} })
    onTestFinished(() => moved.end({ timeout: 1 }))
    expect(await owned(moved)).toEqual(await owned(owner))
    expect(await moved`select datname from pg_database where datname = 'roles_only'`).toEqual([])
  })

  it('lets only writing roles hold up the feed, the days of the log or a migration', async () => {
    const { as } = await migratedByRoles()
    const [read, run] = (['mediadock_read', 'mediadock_run'] as const).map((role) =>
      postgres(as(role), { max: 1, onnotice: () => {} }),
    )
    if (!read || !run) throw new Error('no roles')
    onTestFinished(async () => void (await Promise.all([read.end({ timeout: 1 }), run.end({ timeout: 1 })])))
    // Any role may take these: earlier versions went by them.
    await read`select pg_advisory_lock(n) from generate_series(7120241121, 7120241123) as n`
    for (const statement of [
      'select from mediadock.feed_bounds for update',
      'do $$ begin lock table mediadock.migrations in share row exclusive mode; end $$',
      'do $$ begin lock table mediadock.arrivals_other in share update exclusive mode; end $$',
    ])
      await expect(read.unsafe(statement), statement).rejects.toMatchObject(denied)
    await run`insert into mediadock.changes (changed_at, request_ids, statuses, media_complete) values (now(), array[gen_random_uuid()], array[2::smallint], array[true])`
    expect((await run`select sequenced from mediadock.sequence_changes(null, 10)`)[0]).toEqual({ sequenced: 1 })
    expect((await run`select mediadock.make_arrival_day('2031-02-03') as day`)[0]).toEqual({ day: 'made' })
    expect((await run`select mediadock.drop_arrival_day('2031-02-03') as day`)[0]).toEqual({ day: 'dropped' })
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-roles-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    await fs.cp(migrationsOf.receiver.folder, folder, { recursive: true })
    const journal = path.join(folder, 'meta/_journal.json')
    const { entries, ...more }: { entries: object[] } = JSON.parse(await fs.readFile(journal, 'utf8'))
    const next = { ...entries[0], idx: entries.length, tag: 'next' }
    await fs.writeFile(path.join(folder, 'next.sql'), 'select 1')
    await fs.writeFile(journal, JSON.stringify({ ...more, entries: [...entries, next] }))
    expect(await migrate({ url: as('mediadock_migrate'), schema: 'mediadock', folder }, { lockWaitMs: 0 })).toBe(1)
  })

  it(
    'lets no role create in public, which PostgreSQL 14 allowed, and resolves no name there',
    { timeout: 120_000 },
    async () => {
      const { as, owner, apply } = await migratedByRoles()
      await owner`grant create on schema public to public`
      const trap = 'create function public.trap() returns int language sql as $$ select 1 $$'
      const read = postgres(as('mediadock_read'), { max: 1, onnotice: () => {} })
      onTestFinished(() => read.end({ timeout: 1 }))
      await read.unsafe(trap)
      await apply()
      await expect(read.unsafe(trap.replace('trap', 'other'))).rejects.toMatchObject(denied)
      for (const role of roles) {
        const sql = postgres(as(role), { max: 1, onnotice: () => {} })
        onTestFinished(() => sql.end({ timeout: 1 }))
        expect((await sql`show search_path`)[0], role).toEqual({
          search_path: `pg_catalog, ${role.includes('provider') ? 'provider' : 'mediadock'}, pg_temp`,
        })
        await expect(sql`select trap()`, role).rejects.toMatchObject({ code: '42883' })
      }
      const [timeouts] =
        await read`select current_setting('statement_timeout') as statement, current_setting('idle_in_transaction_session_timeout') as idle`
      expect(timeouts).toEqual({ statement: '1min', idle: '1min' })
    },
  )

  it('lets no role create objects, functions or large objects', async () => {
    const { as } = await migratedByRoles()
    for (const role of roles) {
      const sql = postgres(as(role), { max: 1, onnotice: () => {} })
      onTestFinished(() => sql.end({ timeout: 1 }))
      for (const statement of [
        'create temporary table mine (n int)',
        'select lo_create(0)',
        'select lo_creat(-1)',
        "select lo_from_bytea(0, 'x')",
        ...(role === 'mediadock_migrate' || role === 'mediadock_run'
          ? []
          : [
              "select pg_logical_emit_message(false, 'x', 'x')",
              "select pg_logical_emit_message(false, 'x', 'x'::bytea)",
            ]),
      ])
        await expect(sql.unsafe(statement), `${role}: ${statement}`).rejects.toMatchObject(denied)
    }
  })

  it('says what to do if the role may not apply a new migration', async () => {
    const { as, owner } = await migratedByRoles()
    await owner.unsafe('delete from mediadock.migrations where id = (select max(id) from mediadock.migrations)')
    const { code, stderr } = await mediadockHere({ DATABASE_URL: as('mediadock_run') }, 'migrate', 'receiver')
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(
        /^mediadock: Postgres says: (?:permission denied|must be owner) [^\n]*\(42501\): grant the missing right: see ops\/roles\.sql\n$/,
      ),
    })
  })

  it('lets one role migrate the provider and another run it', async () => {
    const { as } = await migratedByRoles()
    const url = as('mediadock_provider_run')
    const settings = await testSettings(url, { migrateOnStart: true })
    onTestFinished(() => fs.rm(settings.mediaDir, { recursive: true, force: true }))
    const program = await startProvider({ settings, logger: createLogger('silent') })
    onTestFinished(() => program.stop(0))
    const { deps, close } = openProvider({ databaseUrl: url, secretKey: settings.secretKey })
    onTestFinished(close)
    const key = await createKey(deps, { account: 'a', name: 'n', environment: 'sandbox', scopes: ['generate', 'read'] })
    await grantCredits(deps, { account: 'a', credits: '10' })
    const call = (what: string, init: RequestInit & { headers?: Record<string, string> } = {}) =>
      fetch(`${program.urls['api']}${what}`, {
        ...init,
        headers: { authorization: `Bearer ${key.api_key}`, 'content-type': 'application/json', ...init.headers },
      })
    expect((await call('/readyz')).status).toBe(200)
    expect((await call('/v1/account')).status).toBe(200)
    const submitted = await call('/v1/models/aurora-image', {
      method: 'POST',
      headers: { 'idempotency-key': randomUUID() },
      body: JSON.stringify({ input: { prompt: 'a hill' }, webhook_url: 'https://hooks.test/x' }),
    })
    const { request_id: id }: { request_id: string } = JSON.parse(await submitted.text())
    await eventually(async () => (await (await call(`/v1/requests/${id}`)).text()).includes('COMPLETED'))
  })
})
