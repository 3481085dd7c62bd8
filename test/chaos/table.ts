import fs from 'node:fs/promises'
import { expect } from 'vitest'
import type { Came, TableLine } from './table-words.ts'

/** The file that `npm run chaos` collects the lines in. */
const linesFile = process.env['CHAOS_LINES']

/** Tries one fault and writes its line into the table, met or not; then the test fails where it is not. */
export async function inTable(fault: string, goal: string, run: () => Promise<Came>): Promise<void> {
  const write = async (came: Came) => {
    const line: TableLine = { fault, goal, ...came }
    if (linesFile !== undefined) await fs.appendFile(linesFile, `${JSON.stringify(line)}\n`)
    return line
  }
  let came: Came
  try {
    came = await run()
  } catch (error) {
    const why = (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? ''
    await write({
      rounds: 0,
      acknowledged: 0,
      lost: 0,
      doubled: 0,
      silenceMs: undefined,
      measured: `came to no end: ${why}`,
      met: false,
    })
    throw error
  }
  const line = await write(came)
  expect(line, JSON.stringify(line)).toMatchObject({ met: true })
}

/** Writes a line for what this machine cannot show. */
export async function notShown(fault: string, goal: string, why: string): Promise<void> {
  const line: TableLine = {
    fault,
    goal,
    rounds: 0,
    acknowledged: 0,
    lost: 0,
    doubled: 0,
    silenceMs: undefined,
    measured: `not shown: ${why}`,
  }
  if (linesFile !== undefined) await fs.appendFile(linesFile, `${JSON.stringify(line)}\n`)
}
