import { randomUUID } from 'node:crypto'
import type { Flaw } from './commands.ts'

export type Kind = 'image' | 'video' | 'audio'
export type KeyName = 'live' | 'sandbox' | 'late'

export type Truth = { is: 'running' } | { is: 'completed'; outputs: number } | { is: 'failed' } | { is: 'canceled' }

/** A request as the provider knows it. */
export type Request = { id: string; kind: Kind; owner: KeyName; truth: Truth }

export type Call = { key: string; at: number }

/**
 * The provider's truth, and its `fetch`: answers as the spec says, to the key
 * that owns the request, but for the next few calls after `falter`.
 */
export function createProvider(requests: readonly Request[], trueNow: () => number) {
  let flaws: Flaw[] = []
  const calls: Call[] = []
  const pauses: { key: string; from: number; until: number }[] = []

  const answer = (id: string, key: string): Response => {
    const flaw = flaws.shift()
    const pause = (seconds: number) => pauses.push({ key, from: trueNow(), until: trueNow() + seconds * 1000 })
    switch (flaw) {
      case undefined:
        return honest(requests.find((request) => request.id === id && request.owner === key))
      case '500':
        return new Response('oops', { status: 500 })
      case '404':
        return new Response('{}', { status: 404 })
      case '429':
        pause(30)
        return new Response('{}', { status: 429 })
      case '429 with Retry-After':
        pause(90)
        return new Response('{}', { status: 429, headers: { 'retry-after': '90' } })
      case '401':
      case '403':
        // At least: it rests twice as long each time that it is refused again.
        pause(5)
        return new Response('{}', { status: Number(flaw) })
      case 'html':
        return new Response('<html>')
      case 'another request':
        return Response.json({ ...completed({ id, kind: 'image' }, 2), request_id: randomUUID() })
      case 'no url':
        return Response.json({ ...completed({ id, kind: 'image' }, 1), output: { images: [{ width: 1, height: 1 }] } })
      case 'NUL':
        return Response.json({ ...completed({ id, kind: 'image' }, 1), model: 'a\0b' })
      case 'half a pixel':
        return Response.json({
          ...completed({ id, kind: 'image' }, 1),
          output: { images: [{ url: 'https://media.test/x.png', width: 0.5, height: 1 }] },
        })
      case 'reset':
        throw new TypeError('fetch failed', { cause: new Error('read ECONNRESET') })
      default:
        return flaw satisfies never
    }
  }

  const fetch: typeof globalThis.fetch = async (url, init) => {
    const authorization = new Headers(init?.headers).get('authorization') ?? ''
    const key = authorization.replace(/^Bearer service_(live|test)_/, '')
    calls.push({ key, at: trueNow() })
    return answer(String(url).split('/').at(-1) ?? '', key)
  }
  return {
    fetch,
    calls,
    pauses,
    falter: (flaw: Flaw, count: number) => {
      flaws = Array.from({ length: count }, () => flaw)
    },
    recover: () => {
      flaws = []
    },
  }
}

function honest(request: Request | undefined): Response {
  if (!request) return new Response('{}', { status: 404 })
  const { id, truth } = request
  switch (truth.is) {
    case 'running':
      return Response.json(
        { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] },
        { status: 202 },
      )
    case 'completed':
      return Response.json(completed(request, truth.outputs))
    case 'failed':
      return Response.json({
        request_id: id,
        status: 'FAILED',
        error: { code: 'GENERATION_FAILED', message: 'no' },
        cost: 0,
      })
    case 'canceled':
      return Response.json({ request_id: id, status: 'CANCELED' })
    default:
      return truth satisfies never
  }
}

export const extension = { image: 'png', video: 'mp4', audio: 'mp3' } as const

export function linkOf(id: string, kind: Kind, position = 0): string {
  return `https://media.test/${id}-${position}.${extension[kind]}`
}

function completed({ id, kind }: { id: string; kind: Kind }, outputs: number) {
  const size = { width: 640, height: 480 }
  const output = {
    image: { images: Array.from({ length: outputs }, (_, at) => ({ url: linkOf(id, 'image', at), ...size })) },
    video: { video: { url: linkOf(id, 'video'), ...size, duration: 4 } },
    audio: { audio: { url: linkOf(id, 'audio'), duration: 9 } },
  }[kind]
  return {
    request_id: id,
    status: 'COMPLETED',
    model: `a-${kind}`,
    output,
    cost: 7,
    created_at: '2026-01-01T00:00:00Z',
    completed_at: '2026-01-01T00:00:09Z',
  }
}
