import { describe, expect, it } from 'vitest'
import { bodyView, bodyViews } from '../../../src/receiver/console/parts/body-view.ts'

/** 1 MiB with as many lines as can be, each of them 500 levels deep. */
function deep(levels: number, bytes: number): Buffer {
  const [open, close] = ['['.repeat(levels), ']'.repeat(levels)]
  return Buffer.from(`${open}${'1,'.repeat((bytes - 2 * levels) / 2 - 1)}1${close}`)
}

const markup = async (body: Buffer, view: (typeof bodyViews)[number]) => String(await bodyView(body, view))
const shown = async (body: Buffer) =>
  (await markup(body, 'formatted')).replaceAll(/<[^>]*>/g, '').replaceAll('&quot;', '"')

describe('a formatted body', () => {
  it('has one line per member, with values unchanged', async () => {
    const text =
      '{"a":[1,2.50,{"b":"x, {\\"y\\": [1]}","b":null}],"c":{},"d":[],"e":12345678901234567890,"f":"\\u202e"}'
    expect(await shown(Buffer.from(` ${text}\n`))).toContain(`{
  "a": [
    1,
    2.50,
    {
      "b": "x, {\\"y\\": [1]}",
      "b": null
    }
  ],
  "c": {},
  "d": [],
  "e": 12345678901234567890,
  "f": "\\u202e"
}`)
  })

  it.each([
    ['a string', '"text"'],
    ['a number', '-0.5e3'],
    ['nothing', 'null'],
    ['an empty array', '[ ]'],
  ])('shows %s', async (_what, text) => expect(await shown(Buffer.from(text))).toContain(text.replaceAll(' ', '')))

  it.each([
    ['500 levels deep, 1 MiB', deep(500, 1_048_576), /longer than 256/],
    ['500 levels deep, 256 KiB', deep(500, 262_144), /nested deeper than 64/],
    ['65 levels deep', deep(65, 1000), /nested deeper than 64/],
    ['64 levels deep, 256 KiB', deep(64, 262_144), /first 65.536 characters/],
    ['100,000 levels deep', deep(100_000, 262_144), /nested deeper than 64/],
    ['flat, 1 MiB', deep(1, 1_048_576), /longer than 256/],
    ['not JSON', Buffer.from('{"a":1,'), /not JSON/],
  ])('is bounded, and explains why it is shown differently: %s', async (_what, body, why) => {
    const before = process.memoryUsage().heapUsed
    const text = await markup(body, 'formatted')
    expect(text.length).toBeLessThan(400_000)
    expect(text.replaceAll(/[\d,[\]\s]{100,}/g, ' … ')).toMatch(why)
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024)
  })

  it.each([
    ['controls', Buffer.alloc(1_048_576, 1)],
    ['what is no UTF-8', Buffer.alloc(1_048_576, 0xff)],
    ['marks of direction between letters', Buffer.from('a\u202e'.repeat(260_000))],
    ['characters to escape', Buffer.alloc(1_048_576, '<')],
    ['quotes in JSON', Buffer.from(JSON.stringify('"'.repeat(100_000)))],
    ['line feeds', Buffer.alloc(1_048_576, '\n')],
  ])('is bounded as markup in each view: %s', async (_what, body) => {
    for (const view of bodyViews) expect((await markup(body, view)).length).toBeLessThan(520_000)
  })
})
