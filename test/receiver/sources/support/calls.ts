import type { Api, ApiAnswer, Call, Webhook } from '../../../../src/receiver/domain/source.ts'

/** A webhook with these headers; a list is a header that was sent several times. */
export function arrived(headers: Record<string, string | readonly string[]>, body: string | Buffer): Webhook {
  return { header: (name) => [headers[name] ?? []].flat(), body: Buffer.from(body) }
}

/** An API that gives these answers in turn, and the calls that it got. */
export function apiOf(url: string, ...answers: { status: number; json?: unknown; retryAfterSeconds?: number }[]) {
  const calls: Parameters<Call>[0][] = []
  const call: Call = async (request): Promise<ApiAnswer> => {
    calls.push(request)
    const { status, json, retryAfterSeconds } = answers.shift() ?? { status: 599 }
    return { status, body: json === undefined ? '' : JSON.stringify(json), retryAfterSeconds }
  }
  const api: Api = { url, apiKey: 'key', call }
  return { api, calls }
}

/** JSON of a depth at which a recursive reader fails. */
export const deepJson = (member: string) => `{"${member}":${'['.repeat(50_000)}${']'.repeat(50_000)}}`

/** Bodies that no source sends: a kind must answer each of them, and never throw. */
export const junk: readonly unknown[] = [
  undefined,
  null,
  true,
  0,
  '',
  'text',
  [],
  [[]],
  {},
  { id: 1, request_id: 1, status: 1, state: 1, type: 1, data: 1 },
  { id: '', request_id: '', status: '', state: '', type: '', data: {} },
  { id: '..', request_id: '../x', status: 'OK', state: 'completed', type: 'video.generated', data: { id: '..' } },
  { id: {}, request_id: [], status: {}, state: [], type: [], data: [] },
]
