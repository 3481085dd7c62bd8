import type { FrameSize } from '../brief.ts'

/** The text on a picture: the prompt, and a small line below it. */
export type Caption = { prompt: string; credit: string }

/** Letter heights as shares of the short side, each with its greatest number of lines. The first that fits is used. */
const sizes = [
  { share: 0.085, lines: 2 },
  { share: 0.064, lines: 3 },
  { share: 0.05, lines: 4 },
  { share: 0.038, lines: 6 },
] as const

/**
 * Draws the prompt as an SVG group at the foot of the picture, over a shade that keeps it legible. Draws nothing for an
 * empty prompt.
 */
export function drawCaption({ width, height }: FrameSize, { prompt, credit }: Caption): string {
  const text = drawableText(prompt)
  const shortSide = Math.min(width, height)
  const margin = shortSide * 0.065
  const { size, lines } = fitText(text, { width: width - 2 * margin, shortSide, leftOut: prompt.length > 600 })
  const creditSize = Math.max(shortSide * 0.021, 9)
  const lineHeight = size * 1.26
  const foot = height - margin - creditSize * 2.1
  const top = foot - lineHeight * (lines.length - 1)

  const drawn = lines.map((line, index) => {
    const at = `x="${margin}" y="${(top + index * lineHeight).toFixed(1)}"`
    return `<text ${at} font-size="${size.toFixed(1)}">${escapeXml(line)}</text>`
  })
  const shadeTop = Math.max(0, top - size * 3.2)
  // The shade must be dark enough at the first line, regardless of the number of lines.
  const textBegins = ((top - size - shadeTop) / (height - shadeTop)).toFixed(3)
  return `<defs><linearGradient id="shade" x1="0" y1="0" x2="0" y2="1">
<stop offset="0" stop-color="#05060d" stop-opacity="0"/><stop offset="${textBegins}" stop-color="#05060d" stop-opacity="0.62"/>
<stop offset="1" stop-color="#05060d" stop-opacity="0.86"/></linearGradient></defs>
<rect x="0" y="${shadeTop.toFixed(1)}" width="${width}" height="${(height - shadeTop).toFixed(1)}" fill="url(#shade)"/>
<g fill="#ffffff">${drawn.join('')}
<text x="${margin}" y="${(height - margin).toFixed(1)}" font-size="${creditSize.toFixed(1)}" fill-opacity="0.72">${escapeXml(credit)}</text></g>`
}

/** The width of each letter of DejaVu Sans Mono, as a share of its height. */
const letterWidth = 0.602

function fitText(text: string, { width, shortSide, leftOut }: { width: number; shortSide: number; leftOut: boolean }) {
  const broken = (size: number) => breakLines(text, Math.floor(width / (size * letterWidth)))
  for (const { share, lines: most } of sizes) {
    const size = shortSide * share
    const lines = broken(size)
    if (lines.length <= most && !leftOut) return { size, lines }
  }
  const size = shortSide * sizes[3].share
  return { size, lines: clipLines(broken(size), sizes[3].lines, leftOut) }
}

/**
 * Converts the first 600 code units of a prompt to one drawable line, without control, formatting and unpaired
 * characters, and with at most two marks per letter. Characters that the fonts lack become an ellipsis. A prompt of
 * only such characters becomes empty.
 */
export function drawableText(prompt: string): string {
  const text = prompt
    // Enough of a prompt to fill any caption. The rest is ignored.
    .slice(0, 600)
    .toWellFormed()
    .normalize('NFC')
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Zs}\uFFFD]+/gu, ' ')
    // Joiners shape Arabic and Persian. All other invisible characters are removed, especially direction overrides.
    .replace(/(?![\u200C\u200D])[\p{Cf}\p{Co}\p{Cn}\uFE00-\uFE0F]/gu, '')
    .replace(/(\p{M}{2})\p{M}+/gu, '$1')
    .replace(unknownRuns, ' … ')
    .replace(/ +/g, ' ')
    .trim()
  return /[^… ]/u.test(text) ? text : ''
}

/** The fonts have nearly all of the alphabets from Latin to Arabic, punctuation and symbols, and little else. */
const unknownRuns = /[^ -\u06FF\u1E00-\u27BF](?:[^!-\u06FF\u1E00-\u27BF]|\p{M})*/gu

/** Breaks text into lines of at most `most` letters. Cuts a word that is longer. */
export function breakLines(text: string, most: number): string[] {
  const letter = String.raw`(?:\P{M}\p{M}*)`
  const line = new RegExp(`(?! )(?:${letter}{1,${most}}(?= |$)|${letter}{${most}})`, 'gu')
  return (text.match(line) ?? []).map((found) => found.trimEnd())
}

/** Returns the first `most` lines. The last one ends in an ellipsis if text was left out. */
export function clipLines(lines: readonly string[], most: number, leftOut: boolean): string[] {
  if (lines.length <= most && !leftOut) return [...lines]
  const kept = lines.slice(0, most)
  const last = kept.pop() ?? ''
  return [...kept, `${last.replace(/[\s.,;:!?-]+$/u, '')}…`]
}

/** Escapes text for an XML element. `drawableText` has removed characters that XML does not allow. */
export function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.codePointAt(0)};`)
}
