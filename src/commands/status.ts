import { parseArgs } from 'node:util'
import { readTime } from '../platform/postgres/time.ts'
import { placeOfUrl } from '../platform/postgres/url.ts'
import type { Problem } from '../receiver/domain/problem.ts'
import { duration } from '../receiver/on-call/figures.ts'
import { readNow, type Now } from '../receiver/on-call/now.ts'
import { sliceProblems } from '../receiver/on-call/reading.ts'
import { silentAfterSeconds } from '../receiver/reconciling/silence.ts'
import { slices } from '../receiver/slices.ts'
import { lastMinuteWrittenAt } from '../receiver/upkeep/minutes.ts'
import { withReceiver } from './processing.ts'
import { screen, tinted } from './terminal.ts'
import { printable, printJson, type Command } from './usage.ts'

/** Four times as long as a running receiver takes from one minute that it writes to the next. */
const goneAfterSeconds = 120

/** The console cannot say that no receiver runs: a receiver shows it. */
function noReplicaProblem(seenAt: Date | undefined, now: Date): Problem[] {
  const seconds = seenAt === undefined ? Number.POSITIVE_INFINITY : (now.getTime() - seenAt.getTime()) / 1000
  if (seconds <= goneAfterSeconds) return []
  const seen =
    seenAt === undefined
      ? 'none has written to this database in the time that is kept (RETENTION_DAYS)'
      : `the last one wrote to this database at ${seenAt.toISOString()}, ${duration(seconds)} ago`
  const text = `No receiver is running: ${seen}. Start one: mediadock start receiver.`
  return [{ severity: 'critical', cause: 'no_receiver', text, href: '/' }]
}

const options = { json: { type: 'boolean' } } as const

export const statusCommand: Command = {
  help: `
mediadock status [--json]

What the console's first page says: what is wrong now, the worst first, and the figures of the
last minutes. Names the database that it read. Ends with 1 while something is critical, a receiver
that is not running above all, else with 0.

  mediadock status
  mediadock status --json | jq -r '.problems[].text'
`,
  options,
  run: async (args, env) => {
    const { values } = parseArgs({ args, options })
    return withReceiver(env, async ({ db, settings }) => {
      const { keys, fetchRatePerMinute, stuckAfterSeconds, reconcileCron } = settings
      const at = await readTime(db)
      const now = await readNow(db, {
        now: at,
        keys,
        fetchRatePerMinute,
        stuckAfterSeconds,
        silentAfterSeconds: silentAfterSeconds(reconcileCron),
        startedAt: undefined,
        readSlices: (tx) => sliceProblems(tx, slices, { settings, now: at }),
      })
      const problems = [...noReplicaProblem(await lastMinuteWrittenAt(db), now.at), ...now.problems]
      const database = placeOfUrl(settings.databaseUrl)
      const { recent, pending, oldest_seconds, parked, overdue, backlog } = now
      if (values.json) {
        const { minutes, arrivals } = recent
        printJson({
          at: now.at.toISOString(),
          database,
          problems,
          recent: { minutes, arrivals },
          pending,
          oldest_seconds,
          parked,
          overdue,
          backlog,
        })
      } else {
        for (const { severity, text } of problems)
          process.stdout.write(`${tinted(severity.padEnd(8), screen())}  ${printable(text)}\n`)
        if (problems.length === 0) process.stdout.write('Nothing is wrong.\n')
        const waiting = pending === 0 ? 'none waits' : `${pending} wait, the oldest for ${Math.round(oldest_seconds)} s`
        process.stdout.write(
          `\nDatabase ${printable(database)}: ${recent.arrivals} ${recent.arrivals === 1 ? 'arrival' : 'arrivals'} in ${recent.minutes} minutes; of what was accepted ${waiting}; ${parked} parked, ${overdue} overdue, ${backlog.due_capped ? 'at least ' : ''}${backlog.due} due to be polled. ${incompleteWords(backlog)}\n`,
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
