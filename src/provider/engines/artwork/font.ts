import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

const require = createRequire(import.meta.url)

const fontsDir = path.join(path.dirname(require.resolve('dejavu-fonts-ttf/package.json')), 'ttf')

const fontFile = (name: string) => path.join(fontsDir, `${name}.ttf`)

/** The only fonts for pictures, so that the machine's own fonts never change the result. */
export const fontFiles = [fontFile('DejaVuSans'), fontFile('DejaVuSansMono')]

export const captionFamily = 'DejaVu Sans'
export const monoFamily = 'DejaVu Sans Mono'

/** Widths of the caption font, which are needed to break lines before drawing. */
export type FontMetrics = {
  /** Width of the text at a font size of 1. Ligatures are not counted, so the width is never much too small. */
  widthOf: (text: string) => number
  has: (codePoint: number) => boolean
}

let loaded: FontMetrics | undefined

export function captionMetrics(): FontMetrics {
  loaded ??= readMetrics(readFileSync(fontFile('DejaVuSans')))
  return loaded
}

/** Reads the tables `head`, `hhea`, `hmtx` and `cmap` (format 12) of a TrueType file. */
function readMetrics(font: Buffer): FontMetrics {
  const table = (tag: string): Buffer => {
    const count = font.readUInt16BE(4)
    for (let entry = 12; entry < 12 + count * 16; entry += 16) {
      if (font.toString('latin1', entry, entry + 4) === tag) return font.subarray(font.readUInt32BE(entry + 8))
    }
    throw new Error(`the caption font has no table ${tag}`)
  }
  const unitsPerEm = table('head').readUInt16BE(18)
  const widthCount = table('hhea').readUInt16BE(34)
  const widths = table('hmtx')
  const ranges = unicodeRanges(table('cmap'))

  const glyphOf = (codePoint: number): number => {
    const range = ranges.find(({ last }) => codePoint <= last)
    return range !== undefined && codePoint >= range.first ? range.glyph + codePoint - range.first : 0
  }
  const widthOf = (text: string): number => {
    let total = 0
    for (const character of text) {
      const glyph = glyphOf(character.codePointAt(0) ?? 0)
      total += widths.readUInt16BE(Math.min(glyph, widthCount - 1) * 4)
    }
    return total / unitsPerEm
  }
  return { widthOf, has: (codePoint) => glyphOf(codePoint) !== 0 }
}

function unicodeRanges(cmap: Buffer): { first: number; last: number; glyph: number }[] {
  const count = cmap.readUInt16BE(2)
  for (let record = 4; record < 4 + count * 8; record += 8) {
    const subtable = cmap.subarray(cmap.readUInt32BE(record + 4))
    if (subtable.readUInt16BE(0) !== 12) continue
    return Array.from({ length: subtable.readUInt32BE(12) }, (_, index) => ({
      first: subtable.readUInt32BE(16 + index * 12),
      last: subtable.readUInt32BE(20 + index * 12),
      glyph: subtable.readUInt32BE(24 + index * 12),
    }))
  }
  throw new Error('the caption font has no cmap of format 12')
}
