import request, { type Response } from 'supertest'

/** An answer with its body as text. */
export type HttpAnswer = { status: number; headers: Headers; text: string }

export type HttpCall = { headers?: Record<string, string>; body?: string | Uint8Array | undefined }

/** Sends one request with supertest over a real socket. It follows no redirect and sends the body unchanged. */
export async function send(url: string, method: string, { headers = {}, body }: HttpCall = {}): Promise<HttpAnswer> {
  const verb = verbs.find((name) => name === method.toLowerCase())
  if (verb === undefined) throw new Error(`${method} is missing in ${import.meta.filename}`)
  const test = request(url)[verb]('').set(headers).buffer(true).parse(readText)
  const response = await (body === undefined
    ? test
    : test.serialize((bytes) => bytes).send(typeof body === 'string' ? body : Buffer.from(body)))
  return { status: response.status, headers: new Headers(response.headers), text: String(response.body) }
}

const verbs = ['get', 'head', 'post', 'put', 'patch', 'delete', 'options'] as const

function readText(response: Response, done: (error: Error | null, text: string) => void): void {
  let text = ''
  response.setEncoding('utf8')
  response.on('data', (chunk: string) => (text += chunk))
  response.on('end', () => done(null, text))
}
