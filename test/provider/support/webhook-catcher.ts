import http from 'node:http'
import type { AddressInfo } from 'node:net'

export type Caught = { headers: http.IncomingHttpHeaders; body: Buffer; at: number }

/** A receiver of webhooks with configurable answers, on a separate socket. */
export async function startWebhookCatcher(
  answer: (caught: Caught, res: http.ServerResponse) => void = (_caught, res) => void res.end(),
) {
  const caught: Caught[] = []
  const server = http.createServer((req, res) => {
    const chunks: Buffer[] = []
    req.on('data', (chunk: Buffer) => chunks.push(chunk))
    req.on('end', () => {
      const one = { headers: req.headers, body: Buffer.concat(chunks), at: Date.now() }
      caught.push(one)
      answer(one, res)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    origin: `http://127.0.0.1:${port}`,
    caught,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
