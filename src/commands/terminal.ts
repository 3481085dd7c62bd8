import { styleText } from 'node:util'

/** The output's width and colour support. A pipe has unlimited width and no colours. */
export type Screen = { columns: number; colours: boolean }

/** Reads the terminal's size and colour support. Node honours NO_COLOR and TERM. */
export function screen(stream: NodeJS.WriteStream = process.stdout): Screen {
  return stream.isTTY
    ? { columns: stream.columns, colours: stream.hasColors() }
    : { columns: Number.POSITIVE_INFINITY, colours: false }
}

/** The colours of severities, states and outcomes. */
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
  confirmed: 'green',
  COMPLETED: 'green',
  duplicate: 'gray',
  no_effect: 'gray',
} as const

/** The columns that are coloured. Other columns may contain the same words with another meaning. */
const toned = new Set(['severity', 'state', 'status', 'outcome', 'before', 'after'])

export function tinted(text: string, { colours }: Screen): string {
  const tone = Object.entries(tones).find(([word]) => word === text.trim())?.[1]
  return colours && tone !== undefined ? styleText(tone, text, { validateStream: false }) : text
}

/** Columns of ids, which are never shortened, so that they can be copied. Coloured columns are not shortened either. */
const ids = new Set(['id', 'request', 'webhook id', 'fingerprint', 'slug'])

/**
 * Aligns rows as columns. If they are wider than the screen, the widest columns that may be shortened are shortened
 * until the rows fit. If that is not enough, nothing is shortened and the terminal wraps the lines.
 */
export function tableLines(headings: readonly string[], rows: readonly (readonly string[])[], on: Screen): string[] {
  const widest = headings.map((heading, at) => Math.max(heading.length, ...rows.map((row) => (row[at] ?? '').length)))
  // A column is never shortened below 6 characters, nor below its heading.
  const least = headings.map((heading, at) =>
    ids.has(heading) || toned.has(heading) ? (widest[at] ?? 0) : Math.min(widest[at] ?? 0, Math.max(heading.length, 6)),
  )
  const widths = fitted(widest, least, on.columns - 2 * (headings.length - 1))
  const line = (cells: readonly string[], isHeading: boolean) =>
    cells
      .map((cell, at) => {
        const width = widths[at] ?? 0
        const text = cell.length > width ? `${cell.slice(0, width - 1).replace(/[\uD800-\uDBFF]$/, '')}…` : cell
        const padded = at === cells.length - 1 ? text : text.padEnd(width)
        return !isHeading && toned.has(headings[at] ?? '') ? tinted(padded, on) : padded
      })
      .join('  ')
  return [line(headings, true), ...rows.map((row) => line(row, false))]
}

function fitted(widest: readonly number[], least: readonly number[], columns: number): number[] {
  const widths = [...widest]
  const sum = (numbers: readonly number[]) => numbers.reduce((all, width) => all + width, 0)
  if (sum(least) > columns) return widths
  for (let over = sum(widths) - columns; over > 0; over -= 1) {
    const room = widths.map((width, at) => (width > (least[at] ?? 0) ? width : 0))
    const at = room.indexOf(Math.max(...room))
    widths[at] = (widths[at] ?? 0) - 1
  }
  return widths
}

export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  for (const line of tableLines(headings, rows, screen())) process.stdout.write(`${line}\n`)
}
