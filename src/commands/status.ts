import { readTime } from '../platform/postgres/time.ts'
import { placeOfUrl } from '../platform/postgres/url.ts'
import type { Problem } from '../receiver/domain/problem.ts'
import { duration } from '../receiver/on-call/figures.ts'
import { readNow, type Now, sliceProblems } from '../receiver/on-call/reading.ts'
import { silentAfterSeconds } from '../receiver/reconciling/reconciler.ts'
import { slices } from '../receiver/slices.ts'
import { lastMinuteWrittenAt } from '../receiver/upkeep/minutes.ts'
import { withReceiver } from './processing.ts'
import { defineCommand, printable, printJson } from './usage.ts'

/** Reports that no receiver runs. The console cannot report this, because a receiver serves it. */
function noReplicaProblem(seenAt: Date | undefined, now: Date): Problem[] {
  const seconds = seenAt === undefined ? Number.POSITIVE_INFINITY : (now.getTime() - seenAt.getTime()) / 1000
  // Over three times the longest pause (35 s) between two writes of `minutes` while a receiver runs.
  if (seconds <= 120) return []
  const seen =
    seenAt === undefined
      ? 'none has written to this database within RETENTION_DAYS'
      : `the last one wrote to this database at ${seenAt.toISOString()}, ${duration(seconds)} ago`
  const text = `No receiver is running: ${seen}. Start one: mediadock start receiver.`
  return [{ severity: 'critical', cause: 'no_receiver', text, href: '/' }]
}

export const command = defineCommand({
  help: `
mediadock status [--json]

Prints the current problems, worst first, and the figures of the last minutes, as on the first page of
the console. Names the database it reads. Exits with 1 if a problem is critical, for example if no
receiver is running, else with 0.

  mediadock status --json | jq -r '.problems[].text'
`,
  options: { json: { type: 'boolean' } },
  run: ({ json }, _words, env) =>
    withReceiver(env, async ({ db, settings }) => {
      const at = await readTime(db)
      const now = await readNow(db, {
        ...settings,
        now: at,
        silentAfterSeconds: silentAfterSeconds(settings.reconcileCron),
        startedAt: undefined,
        readSlices: (tx) => sliceProblems(tx, slices, { settings, now: at }),
      })
      const problems = [...noReplicaProblem(await lastMinuteWrittenAt(db), now.at), ...now.problems]
      const database = placeOfUrl(settings.databaseUrl)
      const { recent, pending, oldest_seconds, parked, overdue, backlog } = now
      const { minutes, arrivals } = recent
      if (json) {
        const figures = { recent: { minutes, arrivals }, pending, oldest_seconds, parked, overdue, backlog }
        printJson({ at: now.at.toISOString(), database, problems, ...figures })
      } else {
        for (const { severity, text } of problems) process.stdout.write(`${severity.padEnd(8)}  ${printable(text)}\n`)
        if (problems.length === 0) process.stdout.write('No problems.\n')
        const oldest = pending === 0 ? '' : ` (oldest ${Math.round(oldest_seconds)} s)`
        process.stdout.write(
          `\nDatabase ${printable(database)}\n` +
            `${arrivals} ${arrivals === 1 ? 'arrival' : 'arrivals'} in the last ${minutes} minutes. ` +
            `Deliveries: ${pending} pending${oldest}, ${parked} parked. ` +
            `Requests: ${overdue} overdue, ${backlog.due_capped ? 'at least ' : ''}${backlog.due} due to be polled. ` +
            `${incompleteWords(backlog)}\n`,
        )
      }
      return problems.some(({ severity }) => severity === 'critical') ? 1 : 0
    }),
})

function incompleteWords({ incomplete, incomplete_capped, complete_by }: Now['backlog']): string {
  if (incomplete === 0) return 'All landed results are complete.'
  const many = incomplete === 1 ? 'result is' : 'results are'
  const counted = `${incomplete_capped ? 'At least ' : ''}${incomplete} ${many} incomplete.`
  if (complete_by === null) return `${counted} They are completed once the provider answers.`
  const at = new Date(complete_by).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' })
  return `${counted} The keys have calls to complete all by ${at} at the earliest.`
}
