import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { DeadlineError, withDeadline } from '../../../src/platform/deadline.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { childEnv } from '../../support/child-env.ts'
import { testServers, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startPostgresProxy } from '../support/postgres-proxy.ts'
import { startProcess } from '../support/processes.ts'

const silenceSeconds = 1

async function poolBehindProxy({ max = 1 } = {}) {
  const database = await withTestDatabase()
  const proxy = await startPostgresProxy(database.url)
  const pool = createPool({ url: proxy.url, max, silenceSeconds })
  onTestFinished(() => pool.close())
  return { proxy, pool, sql: pool.client }
}

const cut = /postgres sent nothing for 1 s, connection cut|CONNECTION_CLOSED/

it.each(testServers)('JIT is off for all statements on the %s server', async (server) => {
  const database = await withTestDatabase(server)
  const pool = createPool({ url: database.url, max: 1 })
  onTestFinished(() => pool.close())
  expect(await pool.client`show jit`).toEqual([{ jit: 'off' }])
})

describe('a server that stops answering', () => {
  it('is disconnected, and the pool recovers with the server', async () => {
    const { proxy, sql } = await poolBehindProxy()
    await sql`select 1`
    proxy.swallowAfter(0)
    await expect(withDeadline(sql`select 2`, 8000, 'the cut')).rejects.toThrow(cut)
    proxy.passOn()
    expect(await sql`select 3 as n`).toEqual([{ n: 3 }])
    expect(proxy.accepted()).toBeGreaterThan(1)
  })

  it('is disconnected too if it froze on a statement sent right after an answer', async () => {
    const { proxy, sql } = await poolBehindProxy()
    await sql`select 1`
    // Both within one look of the watch: the answer to the first is none to the second.
    const answered = sql`select 2`.then(() => proxy.swallowAfter(0))
    await answered
    await expect(withDeadline(sql`select 3`, 8000, 'the cut')).rejects.toThrow(cut)
    proxy.passOn()
    expect(await sql`select 4 as n`).toEqual([{ n: 4 }])
  })

  it('is disconnected in the middle of an answer', async () => {
    const { proxy, sql } = await poolBehindProxy()
    await sql`select 1`
    proxy.swallowAfter(100_000)
    await expect(withDeadline(sql`select repeat('x', 1000000)`, 8000, 'the cut')).rejects.toThrow(cut)
    proxy.passOn()
    expect(await sql`select 4 as n`).toEqual([{ n: 4 }])
  })

  it('is disconnected on all connections, and no waiting caller hangs', async () => {
    const { proxy, sql } = await poolBehindProxy({ max: 4 })
    await Promise.all(Array.from({ length: 8 }, () => sql`select pg_sleep(0.05)`))
    proxy.swallowAfter(0)
    const statements = Array.from({ length: 4 }, () => withDeadline(sql`select 1`, 8000, 'the cut'))
    for (const one of await Promise.allSettled(statements))
      expect(one).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(cut) } })
    proxy.passOn()
    expect(await Promise.all(Array.from({ length: 8 }, () => sql`select 1 as n`))).toHaveLength(8)
  })
})

describe('a server that answers', () => {
  it('keeps its connection through a silence while nothing is running', async () => {
    const { proxy, sql } = await poolBehindProxy()
    await sql`select 1`
    const since = performance.now()
    await eventually(() => performance.now() - since > 3500)
    expect(await sql`select 2 as n`).toEqual([{ n: 2 }])
    expect(proxy.accepted()).toBe(1)
  })

  it('keeps its connection while questions follow one another', async () => {
    const { proxy, sql } = await poolBehindProxy()
    const since = performance.now()
    while (performance.now() - since < 2500) await sql`select pg_sleep(0.3)`
    expect(proxy.accepted()).toBe(1)
  })

  it('keeps its connection after a statement that failed', async () => {
    const { proxy, sql } = await poolBehindProxy()
    for (let turn = 0; turn < 3; turn += 1) await expect(sql`select 1 / 0`).rejects.toMatchObject({ code: '22012' })
    expect(await sql`select 2 as n`).toEqual([{ n: 2 }])
    expect(proxy.accepted()).toBe(1)
  })
})

it('a server that goes away while a connection is being opened does not end the process', async () => {
  const database = await withTestDatabase()
  const script = path.join(import.meta.dirname, '../support/types-lost.ts')
  const program = startProcess(process.execPath, [script], { env: { ...childEnv, DATABASE_URL: database.url } })
  await program.says(/failed: [^]*alive/)
  expect(await program.exit).toMatchObject({ code: 0 })
})

describe('withDeadline', () => {
  it("returns the work's result, and rejects with its error", async () => {
    await expect(withDeadline(Promise.resolve(7), 1000, 'it')).resolves.toBe(7)
    await expect(withDeadline(Promise.reject(new Error('mine')), 1000, 'it')).rejects.toThrow('mine')
  })

  it('fails with a DeadlineError that says what took too long', async () => {
    const late = withDeadline(new Promise(() => {}), 20, 'asking Postgres')
    await expect(late).rejects.toBeInstanceOf(DeadlineError)
    await expect(late).rejects.toMatchObject({
      name: 'DeadlineError',
      code: 'deadline_exceeded',
      message: 'asking Postgres took longer than 20 ms',
    })
  })

  it('leaves no unhandled rejection when the work fails later', async () => {
    const unhandled: unknown[] = []
    const note = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', note)
    onTestFinished(() => void process.off('unhandledRejection', note))
    const work = delay(30).then(() => Promise.reject(new Error('late')))
    await expect(withDeadline(work, 5, 'it')).rejects.toBeInstanceOf(DeadlineError)
    await expect(work).rejects.toThrow('late')
    await delay(0)
    expect(unhandled).toEqual([])
  })
})
