import { parseArgs } from 'node:util'
import { readNow, type Now } from '../receiver/on-call/now.ts'
import { silentAfterSeconds } from '../receiver/reconciling/silence.ts'
import { withReceiver } from './processing.ts'
import { screen, tinted } from './terminal.ts'
import { printable, printJson, type Command } from './usage.ts'

const options = { json: { type: 'boolean' } } as const

export const statusCommand: Command = {
  help: `
mediadock status [--json]

What the console's first page says: what is wrong now, the worst first, and the figures of the
last minutes. Ends with 1 while something is critical, else with 0.

  mediadock status
  mediadock status --json | jq -r '.problems[].text'
`,
  options,
  run: async (args, env) => {
    const { values } = parseArgs({ args, options })
    return withReceiver(env, async ({ db, settings }) => {
      const { keys, fetchRatePerMinute, stuckAfterSeconds, reconcileCron } = settings
      const now = await readNow(db, {
        now: new Date(),
        keys,
        fetchRatePerMinute,
        stuckAfterSeconds,
        silentAfterSeconds: silentAfterSeconds(reconcileCron),
        startedAt: undefined,
        archives: settings.mediaArchive !== undefined,
      })
      const { problems, recent, pending, oldest_seconds, parked, overdue, backlog } = now
      if (values.json) {
        const { minutes, arrivals } = recent
        printJson({ at: now.at.toISOString(), problems, recent: { minutes, arrivals }, pending, oldest_seconds, parked, overdue, backlog })
      } else {
        for (const { severity, text } of problems) process.stdout.write(`${tinted(severity.padEnd(8), screen())}  ${printable(text)}\n`)
        if (problems.length === 0) process.stdout.write('Nothing is wrong.\n')
        const waiting = pending === 0 ? 'none waits' : `${pending} wait, the oldest for ${Math.round(oldest_seconds)} s`
        process.stdout.write(
          `\n${recent.arrivals} ${recent.arrivals === 1 ? 'arrival' : 'arrivals'} in ${recent.minutes} minutes; of what was accepted ${waiting}; ${parked} parked, ${overdue} overdue, ${backlog.due_capped ? 'at least ' : ''}${backlog.due} due to be polled. ${incompleteWords(backlog)}\n`,
        )
      }
      return problems.some(({ severity }) => severity === 'critical') ? 1 : 0
    })
  },
}

function incompleteWords({ incomplete, incomplete_capped, complete_by }: Now['backlog']): string {
  if (complete_by === null) return 'Every result is complete.'
  const many = incomplete === 1 ? 'result lacks its' : 'results lack their'
  const by = `${incomplete_capped ? 'not before' : 'by about'} ${complete_by}`
  return `${incomplete_capped ? 'At least ' : ''}${incomplete} ${many} full result, complete ${by} with the calls that the keys have.`
}
