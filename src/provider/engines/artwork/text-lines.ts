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
