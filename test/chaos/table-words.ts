/** The measured effect of a fault. */
export type Came = {
  rounds: number
  /** Answered 200, and so promised. */
  acknowledged: number
  /** Promised and not kept, or never landed. */
  lost: number
  /** Stored or landed more than once. */
  doubled: number
  /** The longest time without an acknowledgement; undefined without a steady sender. */
  silenceMs: number | undefined
  /** Further measurements that the goal requires. */
  measured: string
  met: boolean
}

/** `met` is left out where this machine cannot show it. */
export type TableLine = { fault: string; goal: string } & Omit<Came, 'met'> & { met?: boolean }

const headings = ['fault', 'rounds', 'acknowledged', 'lost', 'doubled', 'longest silence', 'goal', 'measured', 'met']

function cellsOf(line: TableLine): string[] {
  const count = (n: number) => n.toLocaleString('en')
  return [
    line.fault,
    count(line.rounds),
    count(line.acknowledged),
    count(line.lost),
    count(line.doubled),
    line.silenceMs === undefined ? '–' : `${(line.silenceMs / 1000).toFixed(1)} s`,
    line.goal,
    line.measured,
    line.met === undefined ? 'not shown' : line.met ? 'yes' : '**no**',
  ]
}

export function asMarkdown(lines: readonly TableLine[], minutes: number): string {
  const row = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  const align = headings.map((_, at) => (at >= 1 && at <= 5 ? '---:' : '---'))
  const met = lines.filter((line) => line.met).length
  const end = `${met} of ${lines.length} goals met, in ${minutes.toFixed(0)} minutes.`
  return [row(headings), row(align), ...lines.map((line) => row(cellsOf(line))), '', end, ''].join('\n')
}

/** For a terminal: one block for each fault, since no line of this length is read. */
export function asText(lines: readonly TableLine[]): string {
  return lines
    .map((line) => {
      const [fault, rounds, acknowledged, lost, doubled, silence, goal, measured] = cellsOf(line)
      return [
        `${line.met === undefined ? '  -   ' : line.met ? '  met ' : 'MISSED'}  ${fault}`,
        `        rounds ${rounds}, acknowledged ${acknowledged}, lost ${lost}, doubled ${doubled}, longest silence ${silence}`,
        `        goal: ${goal}`,
        `        measured: ${measured}`,
      ].join('\n')
    })
    .join('\n')
}
