/**
 * The characters of a formatted text, or bytes of a raw one, that a page shows: enough for a body with many images, and
 * quick to lay out. The whole can be downloaded.
 */
export const shownCharacters = 64 * 1024
/** Larger JSON is shown unformatted: parsing it for a page would block other work for milliseconds. */
export const maxFormattedBytes = 256 * 1024
/** Indentation grows with the square of the levels, so double quadruples it. Real bodies have fewer than half. */
export const maxFormattedDepth = 64

/** Indented JSON, cut to `shownCharacters`, or the reason why it was not formatted. */
export type Formatted = { text: string; cut: boolean } | { refused: 'too_long' | 'too_deep' | 'no_json' }

/**
 * Formats JSON without changing numbers, escapes or duplicate members. Stops at `shownCharacters`, so that small nested
 * input cannot become large output.
 */
export function formatJson(json: string): Formatted {
  if (json.length > maxFormattedBytes) return { refused: 'too_long' }
  try {
    JSON.parse(json)
  } catch {
    return { refused: 'no_json' }
  }
  return indented(json)
}

function indented(json: string): Formatted {
  const pieces: string[] = []
  let length = 0
  let depth = 0
  let last = ''
  const add = (piece: string) => {
    pieces.push(piece)
    length += piece.length
  }
  for (const [token] of json.matchAll(tokens)) {
    const closes = token === '}' || token === ']'
    if (closes) depth -= 1
    const opened = last === '{' || last === '['
    if (closes ? !opened : opened || last === ',') add(`\n${'  '.repeat(depth)}`)
    add(token === ':' ? ': ' : token)
    if (token === '{' || token === '[') depth += 1
    if (depth > maxFormattedDepth) return { refused: 'too_deep' }
    last = token
    if (length > shownCharacters) return { text: pieces.join('').slice(0, shownCharacters), cut: true }
  }
  return { text: pieces.join(''), cut: false }
}

/** A token of a JSON text: a string, punctuation, or another value. */
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g

/** Formats JSON if possible, else returns it unchanged. Returns at most `shownCharacters`. */
export function formatOrCut(json: string): string {
  const formatted = formatJson(json)
  return 'refused' in formatted ? json.slice(0, shownCharacters) : formatted.text
}

/** Returns undefined for a text that is not JSON. */
export function jsonOf(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '')
  } catch {
    return undefined
  }
}
