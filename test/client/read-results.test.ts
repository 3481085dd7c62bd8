import net from 'node:net'
import postgres from 'postgres'
import { beforeAll, describe, expect, expectTypeOf, it, onTestFinished } from 'vitest'
import { overHttp } from '../../src/client/over-http.ts'
import { readResults, type ResultChange, type ReadOptions } from '../../src/client/read-results.ts'
import type { FeedItem } from '../../src/receiver/queries/feed.ts'
import { pruneOnce } from '../../src/receiver/upkeep/retention.ts'
import { type TestDatabase, usualServers } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import type { TestReceiver } from '../support/receiver.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'

describe.each(usualServers)('readResults (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    return its.stop
  })

  const land = async () => {
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await eventually(
      async () => (await database.sql`select from mediadock.feed where request_id = ${requestId}`).length > 0,
    )
    return requestId
  }
  const head = async () =>
    Number((await database.sql`select coalesce(max(position), 0) as head from mediadock.feed`)[0]?.['head'])

  /** All that can be read from, and how. */
  const readers = {
    'over HTTP': (): ReadOptions['from'] => ({ url: receiver.internalUrl }),
    'by postgres.js': (): ReadOptions['from'] => {
      const sql = postgres(database.url, { max: 1, onnotice: () => {} })
      onTestFinished(() => sql.end({ timeout: 1 }))
      return { sql }
    },
    // pg is not at hand here: this has its shape.
    'by a driver with query()': (): ReadOptions['from'] => ({
      sql: { query: async (text, params) => ({ rows: await database.sql.unsafe(text, params) }) },
    }),
  }

  /** Reads on in the background until the test is over. */
  function reading(options: Omit<ReadOptions, 'signal'>) {
    const ended = new AbortController()
    onTestFinished(() => ended.abort())
    const reader = readResults({ ...options, signal: ended.signal })
    const had: ResultChange[] = []
    const done = (async () => {
      for await (const change of reader) had.push(change)
    })()
    done.catch(() => {})
    return { had, reader, done, stop: () => ended.abort() }
  }

  it.each(Object.keys(readers) as (keyof typeof readers)[])(
    'returns each change once with its row, and continues at its position, %s',
    async (name) => {
      const from = readers[name]()
      const after = await head()
      const ids = [await land(), await land()]
      const first = reading({ from, after })
      ids.push(await land())
      await eventually(() => first.had.length === 3)
      expect(first.had.map(({ request_id }) => request_id)).toEqual(ids)
      expect(first.had[0]).toMatchObject({
        status: 'FAILED',
        media_complete: true,
        result: { request_id: ids[0], cost: 0 },
        media: [],
      })
      expect(first.reader.lag()).toMatchObject({
        isCaughtUp: true,
        position: first.had[2]?.position,
        head: first.had[2]?.position,
      })
      expect(first.reader.lag().ms).toBeLessThan(10_000)
      first.stop()
      await first.done
      const second = reading({ from, after: Number(first.had[1]?.position) })
      await eventually(() => second.had.length === 1)
      expect(second.had[0]?.request_id).toBe(ids[2])
    },
  )

  it('waits for an unreachable receiver without losing a change', async () => {
    const after = await head()
    const target = new URL(receiver.internalUrl)
    const proxy = await startProxy(Number(target.port))
    const retries: unknown[] = []
    const { had } = reading({ from: { url: proxy.url }, after, onRetry: (error) => retries.push(error) })
    const ids = [await land()]
    await eventually(() => had.length === 1)
    proxy.cut()
    ids.push(await land())
    await eventually(() => retries.length > 0)
    await proxy.open()
    ids.push(await land())
    await eventually(() => had.length === 3)
    expect(had.map(({ request_id }) => request_id)).toEqual(ids)
  })

  it.each(Object.keys(readers) as (keyof typeof readers)[])(
    'reports that the next change is no longer kept, %s',
    async (name) => {
      await land()
      const later = { ...receiver.deps, retentionDays: 30, clock: () => new Date(Date.now() + 31 * 86_400_000) }
      await pruneOnce(later, new AbortController().signal)
      await expect(reading({ from: readers[name](), after: 1 }).done).rejects.toMatchObject({
        name: 'ReadError',
        code: 'position_expired',
        message: expect.stringContaining('after position 1 are no longer kept'),
      })
    },
  )

  it('does not retry a refused call', async () => {
    await expect(reading({ from: { url: receiver.webhookUrl } }).done).rejects.toMatchObject({
      name: 'ReadError',
      code: 'not_found',
    })
  })
})

it('throws for an address that is no URL, instead of trying it again', () => {
  expect(() => overHttp({ url: 'nonsense' })).toThrow('Invalid URL')
})

it("has the types of the API's answers, checked by the compiler", () => {
  expectTypeOf<ResultChange>().toEqualTypeOf<FeedItem>()
})

/** Passes connections on to a port, until it is cut and after it is opened again. */
async function startProxy(port: number) {
  const sockets = new Set<net.Socket>()
  const server = net.createServer((inner) => {
    const outer = net.connect(port, '127.0.0.1')
    for (const socket of [inner, outer]) {
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    }
    inner.pipe(outer).pipe(inner)
  })
  const open = (at: number) => new Promise<void>((resolve) => server.listen(at, '127.0.0.1', resolve))
  await open(0)
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const cut = () => {
    server.close()
    for (const socket of sockets) socket.destroy()
  }
  onTestFinished(cut)
  return { url: `http://127.0.0.1:${address.port}`, cut, open: () => open(address.port) }
}
