import { once } from 'node:events'
import http from 'node:http'
import type { StandOrder } from './provider-stand.ts'
import { markOf } from './signed-requests.ts'

/** The provider's side of fetching a result, as cheap as it can be: see provider-stand.ts. */
let answerMs = 5
let hanging = new Set<string>()

const server = http.createServer((req, res) => {
  const requestId = req.url?.split('/').at(-1) ?? ''
  if (hanging.has(requestId)) return
  setTimeout(() => {
    const text = JSON.stringify(resultOf(requestId))
    res.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text)
  }, answerMs)
})
server.keepAliveTimeout = 75_000
await listen(0)
const { port } = server.address() as { port: number }
process.send?.({ url: `http://127.0.0.1:${port}` })

process.on('message', (order: StandOrder) => {
  obey(order).then(
    () => process.send?.({ done: true }),
    () => process.exit(1),
  )
})
process.on('disconnect', () => process.exit(0))

async function obey({ answerMs: ms = answerMs, hangs, away }: StandOrder): Promise<void> {
  answerMs = ms
  if (hangs) hanging = new Set(hangs)
  if (away === true && server.listening) {
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
  }
  if (away === false && !server.listening) await listen(port)
}

async function listen(on: number): Promise<void> {
  server.listen(on, '127.0.0.1')
  await once(server, 'listening')
}

function resultOf(requestId: string): object {
  const times = { created_at: '2026-01-01T00:00:00.000Z', completed_at: '2026-01-01T00:00:09.000Z' }
  const url = (ending: string) => `https://media.example/${requestId}.${ending}`
  const what = markOf(requestId)
  if (what === 'error')
    return {
      request_id: requestId,
      status: 'FAILED',
      error: { code: 'GENERATION_FAILED', message: 'the model gave up' },
      cost: 0,
      model: 'aurora-image',
      ...times,
    }
  const common = { request_id: requestId, status: 'COMPLETED', ...times }
  return what === 'audio'
    ? { ...common, model: 'lyra-audio', cost: 2, output: { audio: { url: url('mp3'), duration: 9.5 } } }
    : { ...common, model: 'aurora-image', cost: 4, output: { images: [{ url: url('png'), width: 1024, height: 768 }] } }
}
