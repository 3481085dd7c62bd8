import { describe, expect, it } from 'vitest'
import { breakLines, drawableText, drawCaption } from '../../../src/provider/engines/artwork/caption.ts'
import { drawCaptionLayer } from '../../../src/provider/engines/artwork/picture.ts'
import { rasterize } from '../../../src/provider/engines/rasterize.ts'

describe('drawableText', () => {
  it('leaves a plain prompt as it is', () => {
    expect(drawableText('A lighthouse at dusk, “35 mm” — naïve façade')).toBe(
      'A lighthouse at dusk, “35 mm” — naïve façade',
    )
  })

  it.each([
    ['white space of every kind becomes one space', 'a\t\r\n\u00a0\u2028 b', 'a b'],
    ['controls are gone', 'a\u0000\u001b[1mb', 'a [1mb'],
    ['direction overrides are gone', 'user\u202Egnp.exe\u2066', 'usergnp.exe'],
    ['lone surrogates are gone', 'a \ud800 b', 'a b'],
    ['characters without a glyph become one ellipsis', 'a 一个安静 b', 'a … b'],
    ['a prompt of nothing that can be drawn is empty', '一个安静的地方', ''],
    ['at most two marks stay on a letter', 'e\u0316\u0317\u0318\u0319', 'e\u0316\u0317'],
  ])('%s', (_rule, prompt, drawn) => {
    expect(drawableText(prompt)).toBe(drawn)
  })
})

describe('breakLines', () => {
  it('keeps every line within its letters, marks aside, and loses none', () => {
    expect(breakLines('e\u0316\u0317e\u0316 abc', 2)).toEqual(['e\u0316\u0317e\u0316', 'ab', 'c'])
    const text = `${'a wide shot of a lighthouse '.repeat(8)}${'W'.repeat(90)}`
    const lines = breakLines(text, 12)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(12)
    expect(lines.join('').replaceAll(' ', '')).toBe(text.replaceAll(' ', ''))
  })
})

describe('drawCaption', () => {
  const size = { width: 1280, height: 720 }

  it('escapes markup in the prompt', () => {
    const svg = drawCaption(size, { prompt: `<b a="1" c='2'>&amp;</b>`, credit: 'credit' })
    expect(svg).not.toContain('<b')
    expect(svg).not.toContain('&amp;')
    expect(svg).toContain('&#60;b a=&#34;1&#34; c=&#39;2&#39;&#62;&#38;amp;&#60;/b&#62;')
  })

  it('shortens a long prompt to six lines with an ellipsis', () => {
    const svg = drawCaption(size, { prompt: 'word '.repeat(6000), credit: '' })
    const lines = [...svg.matchAll(/<text [^>]*>([^<]+)</g)].map(([, text]) => text)
    expect(lines).toHaveLength(6)
    expect(lines.at(-1)).toMatch(/word…$/)
  })

  it('draws visible letters', async () => {
    const inked = async (prompt: string) => {
      const layer = await rasterize(drawCaptionLayer(size, { prompt, credit: '' }), new AbortController().signal)
      const pixels = await layer.flatten({ background: '#000000' }).greyscale().raw().toBuffer()
      return pixels.filter((level) => level > 200).length
    }
    expect(await inked('')).toBe(0)
    expect(await inked('LIGHTHOUSE')).toBeGreaterThan(3000)
  })
})
