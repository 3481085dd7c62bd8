import { expect, it, onTestFinished } from 'vitest'
import type { WrittenSpan } from '../../../src/receiver/traces/otlp.ts'
import { openSpanWriter } from '../../../src/receiver/traces/traces.ts'
import { watchedLogger } from '../../platform/support/watched-logger.ts'
import { startCollector } from '../../support/collector.ts'
import { eventually } from '../../support/eventually.ts'

it('keeps a bounded number of spans, logs that others were dropped, and continues', async () => {
  const collector = await startCollector()
  onTestFinished(collector.close)
  const { logger, lines } = watchedLogger()
  const settings = { endpoint: `${collector.url}/v1/traces`, sampler: 'always_on', ratio: 1, resource: {} } as const
  const writer = (await openSpanWriter(settings, { logger })) ?? expect.fail('nothing is installed that sends spans')
  const span: WrittenSpan = {
    name: 'one',
    kind: 'internal',
    root: undefined,
    startMs: Date.now(),
    endMs: Date.now(),
    attributes: { text: 'x', nothing: undefined },
  }
  // In one turn, in which nothing can be sent.
  for (let at = 0; at < 20_000; at += 1) writer.write(span)
  await eventually(() => collector.posts() > 1)
  writer.write({ ...span, name: 'the last', attributes: { text: 'x'.repeat(5000) } })
  await writer.close(60_000)
  const kept = collector.spans()
  expect(kept.length).toBeGreaterThan(8000)
  expect(kept.length).toBeLessThan(9000)
  // The last batches are sent side by side, in any order.
  const last = kept.filter(({ name }) => name === 'the last')
  // Long attributes are cut, and undefined ones omitted.
  expect(last.map(({ attributes }) => attributes)).toEqual([{ text: 'x'.repeat(1024) }])
  expect(kept.find(({ name }) => name === 'one')?.attributes).toEqual({ text: 'x' })
  expect(lines().filter((line) => line.includes('traces may be lost'))).toEqual([
    expect.stringMatching(/Dropped \d+ spans/),
  ])
})
