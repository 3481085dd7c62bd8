import fs from 'node:fs/promises'
import path from 'node:path'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { startEmbeddedPostgres } from '../../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { migrations } from '../../../src/receiver/domain/migrations.ts'
import { readProblems } from '../../../src/receiver/on-call/problems.ts'
import { readingOptions } from '../../../src/receiver/on-call/reading.ts'
import { testServers, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { quickFolder } from '../../support/quick-folder.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, store } from '../../support/worker.ts'

it('a full NOTIFY queue stops neither landing nor the feed, and is a problem that names the session', async () => {
  const url = await smallQueue()
  const receiver = await startTestReceiver({ databaseUrl: url })
  onTestFinished(() => receiver.stop())
  const sql = client(url)
  const [listener] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`
  await sql`listen anything`
  await sql`begin`
  await fillQueue(client(url))

  const samples = [failed(), failed()]
  for (const { body } of samples) expect((await deliver(receiver.webhookUrl, body)).status).toBe(200)
  const looking = client(url)
  await eventually(async () => (await looking`select from mediadock.feed`).length === samples.length)

  const problems = await readProblems(receiver.deps.db, await readingOptions(receiver.deps))
  expect(problems.find(({ cause }) => cause === 'notify_queue_full')?.text).toContain(
    `pg_terminate_backend(${listener?.pid})`,
  )
  const metrics = await (await fetch(new URL('metrics', receiver.internalUrl))).text()
  expect(Number(/^mediadock_notify_queue_usage (.*)$/m.exec(metrics)?.[1])).toBeGreaterThan(0.9)
})

it.each(testServers)('a landing notifies only while the queue has room (%s)', async (server) => {
  const { url, sql } = await withTestDatabase(server)
  const deps = createTestWorker({ databaseUrl: url })
  const notices: string[] = []
  await sql.listen('mediadock_results', (payload) => notices.push(JSON.parse(payload).request_id))
  const [unnoticed, noticed] = [failed(), failed()]
  await sql.unsafe(`create or replace function mediadock.may_notify() returns boolean return false`)
  await store(deps.db, [unnoticed.body])
  deps.setNow(new Date(Date.now() + 1000))
  expect(await workOnce(deps)).toMatchObject({ landed: 1 })
  await sql.unsafe(`create or replace function mediadock.may_notify() returns boolean return true`)
  await store(deps.db, [noticed.body])
  expect(await workOnce(deps)).toMatchObject({ landed: 1 })
  await eventually(() => notices.length > 0)
  expect(notices).toEqual([noticed.requestId])
})

/** A server whose NOTIFY queue has 512 KiB, where others have 8 GiB. */
async function smallQueue(): Promise<string> {
  const dataDir = await fs.mkdtemp(path.join(await quickFolder(), 'mediadock-queue-'))
  onTestFinished(() => fs.rm(dataDir, { recursive: true, force: true, maxRetries: 10 }))
  const settings = { fsync: 'off', max_notify_queue_pages: '64' }
  const server = await startEmbeddedPostgres({ dataDir, logger: createLogger('silent'), settings })
  onTestFinished(() => server.stop())
  await migrate({ url: server.url, ...migrations })
  return server.url
}

function client(url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  onTestFinished(() => sql.end({ timeout: 1 }))
  return sql
}

/** Notifies in ever smaller messages until not even the smallest finds room. */
async function fillQueue(sql: postgres.Sql): Promise<void> {
  for (const length of [7900, 500, 1]) {
    const notify = () => sql`select pg_notify('anything', repeat('a', ${length}))`
    await expect(
      (async () => {
        for (;;) await notify()
      })(),
    ).rejects.toMatchObject({ code: '54000' })
  }
}
