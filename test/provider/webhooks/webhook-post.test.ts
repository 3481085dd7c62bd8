import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { createPoster } from '../../../src/platform/outward/poster.ts'
import { diallingOf } from '../../../src/platform/outward/public-url.ts'
import { eventually } from '../../support/eventually.ts'

it('a receiver that asks for a keep-alive of ten minutes gets a few seconds', async () => {
  const server = http.createServer({ keepAliveTimeout: 600_000 }, (_req, res) => void res.end())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const poster = createPoster({
    judge: (target) => diallingOf(target, [origin]),
    resolve: async () => [],
    timeoutMs: 5000,
    connectionsPerHost: 4,
  })
  onTestFinished(async () => {
    await poster.close()
    server.close()
    server.closeAllConnections()
  })
  let closed = 0
  server.on('connection', (socket) => socket.once('close', () => (closed += 1)))
  const { signal } = new AbortController()
  expect(await poster.post({ url: `${origin}/`, headers: {}, body: Buffer.from('{}') }, signal)).toMatchObject({
    ok: true,
  })
  await eventually(() => closed === 1)
})
