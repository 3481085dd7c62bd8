import os from 'node:os'

export type Cell = string | number | undefined

/** A table of Markdown under its heading. */
export function table(heading: string, columns: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]) => `| ${cells.map(shown).join(' | ')} |`
  return ['', `**${heading}**`, '', line(columns), line(columns.map(() => '---')), ...rows.map(line), ''].join('\n')
}

function shown(cell: Cell): string {
  if (typeof cell !== 'number') return cell ?? '–'
  if (Number.isNaN(cell)) return '–'
  if (!Number.isFinite(cell)) return 'no end'
  return Math.abs(cell) >= 100 ? Math.round(cell).toLocaleString('en-US') : String(Number(cell.toPrecision(3)))
}

export function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** Prints progress for the person who waits. */
export function say(line: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${line}\n`)
}

export function machine(): string {
  const [load = 0] = os.loadavg()
  return `${os.availableParallelism()} cores, Node ${process.version}, load average ${load.toFixed(1)} at ${new Date().toISOString().slice(0, 16)}Z`
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const half = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? (sorted[half] ?? NaN) : ((sorted[half - 1] ?? NaN) + (sorted[half] ?? NaN)) / 2
}
