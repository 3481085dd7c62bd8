import { styleText } from 'node:util'

const tones = {
  critical: 'red',
  warning: 'yellow',
  notice: 'cyan',
  refused: 'red',
  unavailable: 'red',
  FAILED: 'red',
  lost: 'red',
  unauthorized: 'red',
  parked: 'yellow',
  contradiction: 'yellow',
  key_mismatch: 'yellow',
  source_mismatch: 'yellow',
  retry: 'yellow',
  CANCELED: 'yellow',
  accepted: 'green',
  landed: 'green',
  COMPLETED: 'green',
  duplicate: 'gray',
  no_effect: 'gray',
} as const

/** The columns that are coloured. Other columns may contain the same words with another meaning. */
const toned = new Set(['severity', 'state', 'status', 'outcome', 'before', 'after'])

/** Colours a known word in a terminal. Node honours NO_COLOR and TERM, and leaves a pipe without colours. */
export function tinted(text: string): string {
  const tone = Object.entries(tones).find(([word]) => word === text.trim())?.[1]
  return tone === undefined ? text : styleText(tone, text)
}

/** Prints rows as aligned columns. The terminal wraps lines that are wider, so that ids can be copied whole. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = headings.map((heading, at) => Math.max(heading.length, ...rows.map((row) => (row[at] ?? '').length)))
  const print = (cells: readonly string[], isHeading: boolean) => {
    const shown = cells.map((cell, at) => {
      const padded = at === cells.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)
      return !isHeading && toned.has(headings[at] ?? '') ? tinted(padded) : padded
    })
    process.stdout.write(`${shown.join('  ')}\n`)
  }
  print(headings, true)
  for (const row of rows) print(row, false)
}
