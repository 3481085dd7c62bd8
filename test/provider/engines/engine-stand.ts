import { once } from 'node:events'
import http from 'node:http'
import { onTestFinished } from 'vitest'
import { sendJson } from './images-service.ts'

type Part = { text: string; type: string }
type Started = { requestId: string; job: Record<string, unknown>; parts: Map<string, Part> }
export type Look = {
  /** Of this job, from 1. */
  look: number
  /** How many jobs there were when this one began, itself included. */
  job: number
  response: http.ServerResponse
}

/** A server of the engine protocol (docs/engines.md) that starts one job for one request_id; `onLook` answers the looks at a job. */
export async function startEngineStand(onLook: (look: Look) => void | Promise<void>) {
  const started: Started[] = []
  const calls: { method: string; path: string; token: string | undefined }[] = []
  const urls = new Map<string, string>()
  const looks = new Map<string, number>()
  /** Answers in the place of the protocol's, in this order. */
  const instead: ((response: http.ServerResponse) => void)[] = []
  /** Additional answers by path. */
  const files = new Map<string, Buffer>()

  const begin = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    const form = await new Response(await bodyOf(request), {
      headers: { 'content-type': request.headers['content-type'] ?? '' },
    }).formData()
    const job = JSON.parse(String(form.get('job')))
    if (!urls.has(job.request_id)) {
      const files = [...form].flatMap(([name, value]) => (typeof value === 'string' ? [] : [[name, value] as const]))
      const parts = await Promise.all(
        files.map(async ([name, file]) => [name, { text: await file.text(), type: file.type }] as const),
      )
      started.push({ requestId: job.request_id, job, parts: new Map(parts) })
      urls.set(job.request_id, `/jobs/${started.length}`)
    }
    sendJson(response, { url: urls.get(job.request_id) }, 202)
  }
  const answer = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    const { method = '', url: path = '' } = request
    calls.push({ method, path, token: request.headers.authorization })
    const other = instead.shift()
    if (other) {
      await bodyOf(request)
      return other(response)
    }
    if (method === 'POST') return begin(request, response)
    if (method === 'DELETE') return sendJson(response, {})
    const file = files.get(path)
    if (file) return void response.end(file)
    if (![...urls.values()].includes(path)) return sendJson(response, {}, 404)
    looks.set(path, (looks.get(path) ?? 0) + 1)
    await onLook({ look: looks.get(path) ?? 1, job: Number(path.split('/').at(-1)), response })
  }
  const server = http.createServer((request, response) => void answer(request, response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('not listening')
  const of = (method: string) => calls.filter((call) => call.method === method)
  /** The engine restarts without what it had: its jobs are unknown from now on, and a request_id is a new job. */
  const forget = () => urls.clear()
  return { url: `http://127.0.0.1:${address.port}/jobs`, started, calls, of, instead, files, forget }
}

async function bodyOf(request: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}
