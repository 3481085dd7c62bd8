import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { TestDatabase } from '../../support/database.ts'
import { json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'

const samples = path.resolve(import.meta.dirname, '../../../src/provider/engines/samples')

export type Answer = { status: number; body: object; headers?: Record<string, string> }

/** A provider whose answer about each request is chosen. `answer` replaces all of them; media are served nevertheless. */
export type World = ProviderStand & {
  says: (requestId: string, answer: Answer) => void
  media: (name: string) => string
}

const unknown: Answer = {
  status: 404,
  body: { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } },
}

export async function startWorld(): Promise<World> {
  const stand = await startProviderStand()
  const answers = new Map<string, Answer>()
  let answerCall: Parameters<ProviderStand['answer']>[0] = (id, req, res) => {
    if (req.method === 'POST') return json(res, 200, submitted(stand.url))
    const { status, body, headers } = answers.get(id) ?? unknown
    return json(res, status, body, headers)
  }
  stand.answer((id, req, res) => {
    if (id.endsWith('.svg')) return void res.writeHead(200, { 'content-type': 'image/svg+xml' }).end(picture(id))
    if (id.endsWith('.webp'))
      return void readFile(path.join(samples, id)).then((bytes) =>
        res.writeHead(200, { 'content-type': 'image/webp' }).end(bytes),
      )
    if (id.endsWith('.wav')) return void res.writeHead(200, { 'content-type': 'audio/wav' }).end(silence())
    if (id.endsWith('.mp4')) return void res.writeHead(200, { 'content-type': 'video/mp4' }).end()
    return answerCall(id, req, res)
  })
  return {
    ...stand,
    answer: (handler) => {
      answerCall = handler
    },
    says: (requestId, answer) => void answers.set(requestId, answer),
    media: (name) => `${stand.url}/${name}`,
  }
}

function submitted(url: string) {
  const id = randomUUID()
  const base = `${url}/v1/requests/${id}`
  return {
    request_id: id,
    status: 'IN_QUEUE',
    queue_position: 0,
    status_url: `${base}/status`,
    response_url: base,
    cancel_url: `${base}/cancel`,
    cost: 4,
  }
}

export function running(requestId: string): Answer {
  return {
    status: 202,
    body: { request_id: requestId, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] },
  }
}

/** A result whose end lies `secondsAgo` in the past. */
export function completed(requestId: string, output: object, secondsAgo = 2): Answer {
  const at = (ago: number) => new Date(Date.now() - ago * 1000).toISOString()
  return {
    status: 200,
    body: {
      request_id: requestId,
      status: 'COMPLETED',
      model: 'aurora-image',
      output,
      cost: 4,
      created_at: at(secondsAgo + 9),
      completed_at: at(secondsAgo),
    },
  }
}

export const pictures = ({ media }: World, count: number) => ({
  images: Array.from({ length: count }, (_, at) => ({
    url: media(`${at}.svg`),
    width: 640,
    height: 480,
    original_url: media(`original-${at}.svg`),
  })),
})

/** The webhook of a result, which may have less than the whole of it. */
export const notified = (requestId: string, output: object) => ({
  requestId,
  body: Buffer.from(
    JSON.stringify({ request_id: requestId, status: 'OK', payload: { model: 'aurora-image', output, cost: 4 } }),
  ),
})

/** Tracked so many seconds ago. */
export async function track(
  { sql }: TestDatabase,
  {
    id = randomUUID(),
    ago = 0,
    model = 'aurora-image',
    keyName = 'live',
  }: { id?: string; ago?: number; model?: string; keyName?: string } = {},
): Promise<string> {
  await sql`insert into mediadock.requests (request_id, model, key_name, tracked_at, metadata)
    values (${id}, ${model}, ${keyName}, now() - make_interval(secs => ${ago}), ${'{"order": 42}'}::text::jsonb)`
  return id
}

function picture(name: string): string {
  const hue = [...name].reduce((sum, character) => (sum * 31 + character.charCodeAt(0)) % 360, 7)
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 48"><rect width="64" height="48" fill="hsl(${hue} 60% 55%)"/><circle cx="44" cy="14" r="7" fill="#fff8"/><path d="M0 48 20 22l14 16 8-8 22 18z" fill="#0005"/></svg>`
}

/** A tenth of a second of nothing, 8 kHz. */
function silence(): Buffer {
  const samples = 800
  const wav = Buffer.alloc(44 + samples, 128)
  wav.write('RIFF', 0)
  wav.writeUInt32LE(36 + samples, 4)
  wav.write('WAVEfmt ', 8)
  wav.writeUInt32LE(16, 16)
  wav.writeUInt16LE(1, 20)
  wav.writeUInt16LE(1, 22)
  wav.writeUInt32LE(8000, 24)
  wav.writeUInt32LE(8000, 28)
  wav.writeUInt16LE(1, 32)
  wav.writeUInt16LE(8, 34)
  wav.write('data', 36)
  wav.writeUInt32LE(samples, 40)
  return wav
}
