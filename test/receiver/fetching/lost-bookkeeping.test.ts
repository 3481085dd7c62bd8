import { randomUUID } from 'node:crypto'
import { Counter } from 'prom-client'
import { expect, it } from 'vitest'
import { createFetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../src/receiver/fetching/source-client.ts'
import { withTestDatabase } from '../../support/database.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { aroundStatements } from '../../support/statements.ts'
import { createTestWorker } from '../../support/worker.ts'

it("an answer is kept if Postgres fails before the key's state is stored", async () => {
  const { url } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url, keys: () => keysOf(liveKey) })
  let statements = 0
  // The call is granted; then nothing can be written.
  const db = aroundStatements(deps.db, (run) => ((statements += 1) === 1 ? run() : Promise.reject(new Error('gone'))))
  const calls = new Counter({ name: 'unread', help: 'unread', labelNames: ['operation', 'outcome'], registers: [] })
  const headers = { 'ratelimit-remaining': '0', 'ratelimit-reset': '60' }
  const notFound = async () => new Response(null, { status: 404, headers })
  const client = createSourceClient({ baseUrl: 'http://provider.test', fetch: notFound, clock: deps.clock })
  const fetch = createFetcher({ ...deps, db, client, calls })
  const requestId = randomUUID()
  const asked = { requestId, jobId: requestId, sourceName: null, model: undefined }
  const fetched = await fetch({ ...asked, keyName: 'live', purpose: 'completing', signal: deps.cut })
  expect(fetched).toEqual({ answer: { kind: 'not_found' }, keyName: 'live' })
  expect(statements).toBe(2)
})
