import { once } from 'node:events'
import http from 'node:http'
import { buffer } from 'node:stream/consumers'
import { Pool } from 'undici'
import { onTestFinished } from 'vitest'

const checkEveryMs = 200

/** A load balancer in front of receivers: in turn to those whose readiness is 200, and each request once. */
export async function withBalancer(urls: readonly string[]) {
  const sites = urls.map((url) => ({ url, pool: new Pool(url, { connections: 64, pipelining: 1 }), isUp: true }))
  const look = async () => {
    await Promise.all(
      sites.map(async (site) => {
        const answer = await fetch(`${site.url}/readyz`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined)
        await answer?.arrayBuffer().catch(() => {})
        site.isUp = answer?.status === 200
      }),
    )
  }
  const checking = setInterval(() => void look(), checkEveryMs)
  let turn = 0
  const server = http.createServer(async (req, res) => {
    const body = await buffer(req)
    const up = sites.filter(({ isUp }) => isUp)
    const site = up[(turn += 1) % up.length]
    if (!site) return res.writeHead(503).end('{}')
    const { host: _host, connection: _connection, ...headers } = req.headers
    try {
      const answer = await site.pool.request({ method: 'POST', path: req.url ?? '/', headers, body })
      return res.writeHead(answer.statusCode).end(await answer.body.text())
    } catch {
      return res.writeHead(502).end('{}')
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  onTestFinished(async () => {
    clearInterval(checking)
    server.close()
    server.closeAllConnections()
    await Promise.all(sites.map(({ pool }) => pool.destroy()))
  })
  return {
    url: `http://127.0.0.1:${address.port}`,
    sends: (url: string) => sites.some((site) => site.url === url && site.isUp),
  }
}
