import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { writeTo } from '../../../src/receiver/api/event-stream.ts'

it('waits until a reader has consumed the sent data', async () => {
  const reader = new PassThrough({ highWaterMark: 10 })
  const written = writeTo(reader, 'x'.repeat(100), { signal: AbortSignal.timeout(5000) })
  expect(await Promise.race([written, Promise.resolve('waiting')])).toBe('waiting')
  reader.resume()
  await written
})

it('gives up a reader that consumes nothing, and one that disconnected', async () => {
  const reader = () => new PassThrough({ highWaterMark: 10 })
  const never = new AbortController().signal
  await expect(writeTo(reader(), 'x'.repeat(100), { signal: never, stallMs: 20 })).rejects.toThrow()
  await expect(writeTo(reader(), 'x'.repeat(100), { signal: AbortSignal.abort() })).rejects.toThrow()
  await writeTo(reader(), 'x', { signal: never, stallMs: 20 })
})
