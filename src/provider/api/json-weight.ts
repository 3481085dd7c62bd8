import { HttpError } from '../../platform/http/http.ts'

/** The deepest valid input has three levels. Recursive code overflows its stack only far above this limit. */
const maxLevels = 16
/** Limit of all members and items together. The largest valid input of the built-in catalog has about sixty. */
const maxValues = 2000

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c]
const openings = new Set([0x5b, 0x7b])
const closings = new Set([0x5d, 0x7d])

/**
 * Refuses JSON with too many or too deeply nested values, before parsing. Many small values take far longer to parse
 * and check than one long text, and block all other callers.
 */
export function weighJson(bytes: Buffer): void {
  let depth = 0
  let values = 1
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0
    if (byte === quote) at = endOfString(bytes, at)
    else if (byte === comma) values += 1
    else if (closings.has(byte)) depth -= 1
    else if (openings.has(byte)) {
      depth += 1
      values += 1
    } else continue
    if (depth > maxLevels + 1)
      throw new HttpError(422, 'model_input_invalid', `input is nested deeper than ${maxLevels} levels`)
    if (values > maxValues)
      throw new HttpError(422, 'model_input_invalid', `the body has more than ${maxValues} members and items`)
  }
}

/** The end of the string that begins at `from`, or the end of the bytes if it does not end. */
function endOfString(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(quote, from + 1); at !== -1; at = bytes.indexOf(quote, at + 1)) {
    let escapes = 0
    while (bytes[at - 1 - escapes] === backslash) escapes += 1
    if (escapes % 2 === 0) return at
  }
  return bytes.length
}
