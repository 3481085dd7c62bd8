import { captionMetrics } from './font.ts'

const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' })

/**
 * Converts a prompt to one drawable line of at most 600 code units, without control, formatting and unpaired
 * characters, and with at most two marks per letter. Characters missing in the font become an ellipsis. A prompt of
 * only such characters becomes empty.
 */
export function drawableText(prompt: string): string {
  const clean = prompt
    // Enough of a prompt to fill any caption. The rest is ignored.
    .slice(0, 600)
    .toWellFormed()
    .normalize('NFC')
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Zs}\uFFFD]+/gu, ' ')
    // Joiners shape Arabic, Persian and emoji. All other invisible characters are removed, especially direction
    // overrides.
    .replace(/(?![\u200C\u200D])[\p{Cf}\p{Co}\p{Cn}\uFE00-\uFE0F]/gu, '')
    .replace(/(\p{M}{2})\p{M}+/gu, '$1')
  const { has } = captionMetrics()
  const known = Array.from(clean, (character) =>
    has(character.codePointAt(0) ?? 0) ? character : unknownCharacter,
  ).join('')
  const text = known.replace(unknownRuns, ' … ').replace(/ +/g, ' ').trim()
  return /[^… ]/u.test(text) ? text : ''
}

/** Stands for a character without a glyph. It cannot occur in the text, because formatting characters were removed. */
const unknownCharacter = '\uFFFE'
const unknownRuns = /\uFFFE(?:\uFFFE|\p{M}|\u200C|\u200D| )*/gu

/** Breaks text into lines no wider than `width` em. Cuts a word that is wider. */
export function breakLines(text: string, width: number): string[] {
  const { widthOf } = captionMetrics()
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ').flatMap((whole) => cutWord(whole, width))) {
    const longer = line === '' ? word : `${line} ${word}`
    if (line !== '' && widthOf(longer) > width) {
      lines.push(line)
      line = word
    } else {
      line = longer
    }
  }
  return line === '' ? lines : [...lines, line]
}

function cutWord(word: string, width: number): string[] {
  const { widthOf } = captionMetrics()
  if (widthOf(word) <= width) return [word]
  const pieces: string[] = []
  let piece = ''
  for (const { segment } of graphemes.segment(word)) {
    if (piece !== '' && widthOf(piece + segment) > width) {
      pieces.push(piece)
      piece = ''
    }
    piece += segment
  }
  return [...pieces, piece]
}

/** Returns the first `most` lines. The last one ends in an ellipsis if text was left out. */
export function clipLines(lines: readonly string[], most: number, leftOut: boolean): string[] {
  if (lines.length <= most && !leftOut) return [...lines]
  const kept = lines.slice(0, most)
  const last = kept.pop() ?? ''
  return [...kept, `${last.replace(/[\s.,;:!?-]+$/u, '')}…`]
}

/** True if a line starts from the right, judged by its first letter with a direction. */
export function startsFromRight(line: string): boolean {
  const [letter] = /\p{L}/u.exec(line) ?? []
  return letter !== undefined && /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFC]/u.test(letter)
}

/** Escapes text for an XML element. `drawableText` has removed characters that XML does not allow. */
export function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.codePointAt(0)};`)
}
