import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'

type Value = string | number | boolean | undefined

export type CollectedSpan = {
  traceId: string
  spanId: string
  /** Empty: it is the first of its trace. */
  parentSpanId: string
  name: string
  kind: number
  startMs: number
  endMs: number
  attributes: Record<string, Value>
  /** Of the status: 2 is an error. */
  code: number
  events: string[]
  resource: Record<string, Value>
}

/** A real OTLP/HTTP receiver: it decodes the protobuf that is posted to `/v1/traces`. */
export type Collector = {
  url: string
  spans: () => CollectedSpan[]
  posts: () => number
  /** Its status from now on. It does not keep what it refuses. */
  answer: (status: number) => void
  close: () => Promise<void>
}

export async function startCollector(): Promise<Collector> {
  const spans: CollectedSpan[] = []
  /** Not decoded yet: an export ends after 10 s, and decoding many on a slow machine takes longer. */
  let bodies: Buffer[] = []
  let status = 200
  let posts = 0
  const server = http.createServer((req, res) => {
    buffer(req).then(
      (body) => {
        posts += 1
        const isTraces = req.url === '/v1/traces' && req.headers['content-type'] === 'application/x-protobuf'
        if (status === 200 && isTraces) bodies.push(body)
        res.writeHead(isTraces ? status : 404).end()
      },
      () => res.destroy(),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    spans: () => {
      spans.push(...bodies.flatMap(decode))
      bodies = []
      return spans
    },
    posts: () => posts,
    answer: (next) => {
      status = next
    },
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

type Field = { at: number; number: bigint; bytes: Buffer }

/** The fields of a protobuf message, in their order. */
function fieldsOf(message: Buffer): Field[] {
  const fields: Field[] = []
  let at = 0
  const varint = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at)
      at += 1
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }
  const take = (length: number) => message.subarray(at, (at += length))
  while (at < message.length) {
    const tag = Number(varint())
    const [field, wire] = [tag >> 3, tag & 7]
    if (wire === 0) fields.push({ at: field, number: varint(), bytes: Buffer.alloc(0) })
    else if (wire === 1) fields.push({ at: field, number: message.readBigUInt64LE(at), bytes: take(8) })
    else if (wire === 2) fields.push({ at: field, number: 0n, bytes: take(Number(varint())) })
    else if (wire === 5) fields.push({ at: field, number: BigInt(message.readUInt32LE(at)), bytes: take(4) })
    else throw new Error(`there is no wire type ${wire}`)
  }
  return fields
}

const all = (message: Buffer, field: number) => fieldsOf(message).filter(({ at }) => at === field)
const first = (message: Buffer, field: number) => all(message, field)[0]
const bytesAt = (message: Buffer, field: number) => first(message, field)?.bytes ?? Buffer.alloc(0)
const textAt = (message: Buffer, field: number) => bytesAt(message, field).toString()
const msAt = (message: Buffer, field: number) => Number(first(message, field)?.number ?? 0n) / 1e6

/** An ExportTraceServiceRequest; the numbers are those of opentelemetry/proto/trace/v1/trace.proto. */
function decode(request: Buffer): CollectedSpan[] {
  return all(request, 1).flatMap(({ bytes: ofResource }) => {
    const resource = attributesOf(bytesAt(ofResource, 1), 1)
    return all(ofResource, 2).flatMap(({ bytes: ofScope }) =>
      all(ofScope, 2).map(({ bytes: span }) => ({
        traceId: bytesAt(span, 1).toString('hex'),
        spanId: bytesAt(span, 2).toString('hex'),
        parentSpanId: bytesAt(span, 4).toString('hex'),
        name: textAt(span, 5),
        kind: Number(first(span, 6)?.number ?? 0n),
        startMs: msAt(span, 7),
        endMs: msAt(span, 8),
        attributes: attributesOf(span, 9),
        code: Number(first(bytesAt(span, 15), 3)?.number ?? 0n),
        events: all(span, 11).map(({ bytes: event }) => textAt(event, 2)),
        resource,
      })),
    )
  })
}

function attributesOf(message: Buffer, field: number): Record<string, Value> {
  return Object.fromEntries(all(message, field).map(({ bytes: pair }) => [textAt(pair, 1), valueOf(bytesAt(pair, 2))]))
}

function valueOf(any: Buffer): Value {
  const [value] = fieldsOf(any)
  if (value?.at === 1) return value.bytes.toString()
  if (value?.at === 2) return value.number === 1n
  if (value?.at === 3) return Number(value.number)
  return value?.at === 4 ? value.bytes.readDoubleLE() : undefined
}
