/** Prints rows as aligned columns. The terminal wraps lines that are wider, so that ids can be copied whole. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = headings.map((heading, at) => Math.max(heading.length, ...rows.map((row) => (row[at] ?? '').length)))
  for (const cells of [headings, ...rows]) {
    const padded = cells.map((cell, at) => (at === cells.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)))
    process.stdout.write(`${padded.join('  ')}\n`)
  }
}
