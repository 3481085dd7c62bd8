import { once } from 'node:events'
import http from 'node:http'
import sharp from 'sharp'
import { onTestFinished } from 'vitest'

type Received = {
  method: string | undefined
  path: string | undefined
  headers: http.IncomingHttpHeaders
  body: unknown
}
export type Answer = (exchange: {
  request: Received
  response: http.ServerResponse
  url: string
}) => void | Promise<void>

/** A real HTTP server in the place of an OpenAI-compatible image service; it answers as it is set to. */
export async function startImagesService(answer: Answer) {
  const received: Received[] = []
  const server = http.createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk)
      const seen = {
        method: request.method,
        path: request.url,
        headers: request.headers,
        body: await bodyOf(Buffer.concat(chunks), request),
      }
      received.push(seen)
      await answer({ request: seen, response, url })
    })()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('not listening')
  const url = `http://127.0.0.1:${address.port}`
  return { url: `${url}/v1`, origin: url, received, server }
}

/** JSON, or the fields of a form: texts, and files with their name, type and bytes. */
async function bodyOf(bytes: Buffer, { headers }: http.IncomingMessage): Promise<unknown> {
  const type = headers['content-type'] ?? ''
  if (!type.startsWith('multipart/form-data'))
    return bytes.length === 0 ? undefined : JSON.parse(bytes.toString('utf8'))
  const form = await new Response(new Uint8Array(bytes), { headers: { 'content-type': type } }).formData()
  const fields = [...form].map(async ([name, value]) => {
    if (typeof value === 'string') return [name, value] as const
    return [name, { name: value.name, type: value.type, bytes: Buffer.from(await value.arrayBuffer()) }] as const
  })
  return Promise.all(fields)
}

export function sendJson(response: http.ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

/** A picture of one colour, as a service would make it. */
export async function picture(
  format: 'png' | 'jpeg' | 'webp' | 'svg',
  { width = 96, height = 64, shade = 120 } = {},
): Promise<Buffer> {
  if (format === 'svg') return Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
  return sharp({ create: { width, height, channels: 3, background: { r: shade, g: 40, b: 90 } } })
    .toFormat(format)
    .toBuffer()
}
