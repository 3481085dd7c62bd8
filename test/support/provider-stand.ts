import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * A real HTTP server that speaks the provider's side of the wire for tests that
 * need answers which a well-behaved provider never gives.
 */
export type ProviderStand = {
  url: string
  calls: { path: string; authorization: string | undefined }[]
  /** Sets the answer of `GET /v1/requests/{id}`. */
  answer: (handler: (id: string, req: http.IncomingMessage, res: http.ServerResponse) => void) => void
  close: () => Promise<void>
}

export async function startProviderStand(): Promise<ProviderStand> {
  const calls: ProviderStand['calls'] = []
  let handler: Parameters<ProviderStand['answer']>[0] = (_id, _req, res) =>
    json(res, 404, { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } })
  const server = http.createServer((req, res) => {
    calls.push({ path: req.url ?? '', authorization: req.headers.authorization })
    handler(req.url?.split('/').at(-1) ?? '', req, res)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    calls,
    answer: (next) => {
      handler = next
    },
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

export function json(
  res: http.ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

/** A COMPLETED result of `count` pictures. */
export function imageResult(id: string, count = 1) {
  return {
    request_id: id,
    status: 'COMPLETED',
    model: 'aurora-image',
    output: {
      images: Array.from({ length: count }, (_, at) => ({
        url: `https://media.test/${id}-${at}.png`,
        width: 640,
        height: 480,
        original_url: `https://media.test/${id}-${at}-original.png`,
      })),
    },
    cost: 4,
    created_at: '2026-01-01T00:00:00.000Z',
    completed_at: '2026-01-01T00:00:09.000Z',
  }
}
