import net from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { eventually } from '../support/eventually.ts'

/** An answer as it came off the socket; `code` is that of the error, or what became of the delivery. */
export type RawAnswer = { status: number; code: string | undefined; headers: string; body: string }

export type RawConnection = {
  send: (bytes: string | Uint8Array) => void
  /** Waits for so many answers in all, or for the end of the connection. */
  answers: (count: number) => Promise<RawAnswer[]>
  isOver: () => boolean
  /** Ends our side only. */
  end: () => void
  close: () => void
}

/** A socket that sends bytes as they are; a string is one byte for each character. */
export async function connect(url: string): Promise<RawConnection> {
  const { port } = new URL(url)
  const socket = net.connect({ port: Number(port), host: '127.0.0.1', noDelay: true, allowHalfOpen: true })
  let text = ''
  let isOver = false
  const over = () => (isOver = true)
  socket
    .setEncoding('latin1')
    .on('data', (chunk) => (text += chunk.toString()))
    .on('end', over)
    .on('close', over)
    .on('error', over)
  await eventually(() => !socket.connecting)
  return {
    send: (bytes) => void socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes),
    answers: async (count) => {
      await eventually(() => isOver || answersIn(text).length >= count, 8000).catch(() => undefined)
      return answersIn(text)
    },
    isOver: () => isOver,
    end: () => void socket.end(),
    close: () => void socket.destroy(),
  }
}

/** Sends one request on a new connection and returns its answer. */
export async function exchange(url: string, bytes: string | Uint8Array): Promise<RawAnswer | undefined> {
  const connection = await connect(url)
  try {
    connection.send(bytes)
    return (await connection.answers(1))[0]
  } finally {
    connection.close()
  }
}

function answersIn(text: string): RawAnswer[] {
  const answers: RawAnswer[] = []
  let rest = text
  for (;;) {
    const [, headers, status] = /^(HTTP\/1\.1 (\d{3}) [\s\S]*?\r\n)\r\n/.exec(rest) ?? []
    if (headers === undefined) return answers
    const isInterim = Number(status) < 200
    const start = headers.length + 2
    const { body, end } = isInterim ? { body: '', end: start } : bodyFrom(rest, headers, start)
    if (end === undefined) return answers
    answers.push({ status: Number(status), code: codeIn(body), headers: headers.toLowerCase(), body })
    rest = rest.slice(end)
  }
}

function bodyFrom(text: string, headers: string, start: number): { body: string; end: number | undefined } {
  const declared = /\r\ncontent-length: (\d+)\r\n/i.exec(headers)?.[1]
  if (declared !== undefined) {
    const end = start + Number(declared)
    return { body: text.slice(start, end), end: text.length < end ? undefined : end }
  }
  const last = text.indexOf('0\r\n\r\n', start)
  // The envelope comes in one chunk.
  return { body: /\{.*\}/.exec(text.slice(start))?.[0] ?? '', end: last < 0 ? undefined : last + 5 }
}

const envelope = /^\{"error":\{"type":"invalid_request_error","code":"(\w+)","message":".+"\}\}$/

function codeIn(body: string): string | undefined {
  return envelope.exec(body)?.[1] ?? /^\{"status":"(\w+)"\}$/.exec(body)?.[1]
}

setFlagsFromString('--expose-gc')
const collect: unknown = runInNewContext('gc')

/** The memory of this process after garbage collection. */
export function heldBytes(): number {
  for (let n = 0; n < 3; n += 1) if (typeof collect === 'function') collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
