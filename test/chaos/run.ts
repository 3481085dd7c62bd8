import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { asMarkdown, asText, type TableLine } from './table-words.ts'

/** `npm run chaos [-- table | others | stranger | <file>…] [--report <file>]`: see docs/fault-tests.md. */

const root = path.resolve(import.meta.dirname, '../..')

/** Each fault with its line in the table, the quickest first. */
const table = [
  'chaos/constant-time',
  'chaos/memory-limit',
  'chaos/canary',
  'chaos/at-once',
  'chaos/read-only',
  'chaos/disk',
  'chaos/connections',
  'chaos/clock',
  'chaos/nobody-there',
  'chaos/failover',
  'chaos/high-availability',
  'chaos/operators-drill',
  'chaos/postgres-crash',
  'chaos/kill',
  'release/service',
  'chaos/rolling',
  'release/real-balancers',
  'provider/killed-at-each-step',
]

/** Further tests with a long form. */
const others = [
  'release/resets',
  'chaos/duplicates',
  'release/four-sources',
  'release/late-webhooks',
  'release/overload',
  'release/subscribers',
  'chaos/postgres-away',
  'release/whole-loop',
  'start/',
  'provider/chaos',
  'bad-input',
  'model',
  'bounds',
  'interleavings',
  'landing',
  'load',
  'engines/',
  'release/video-references',
  'lost-connections',
  // In their long form on both servers.
  'receiver/api',
  'receiver/fetching',
  'receiver/reconciling',
  'client/',
  'receiver/queries',
  'receiver/on-call',
  'receiver/results-pages',
  'provider/operating',
  'rate-limit',
  'outbox-claims',
  'fair-dispatch',
  'sessions',
  'replay-preview',
  'subscribing',
  'feeding',
  'large-indexes',
  'arrival-partitions',
  'thumbnails',
  'release/ffmpeg',
  // Every page in both schemes, wide and on a phone.
  'browser/',
]

const named: Record<string, readonly string[]> = { table, others, stranger: ['release/stranger'] }

const { values, positionals } = parseArgs({ options: { report: { type: 'string' } }, allowPositionals: true })
const files = positionals.length === 0 ? table : positionals.flatMap((name) => named[name] ?? [name])
const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-report-'))
const lines = path.join(folder, 'lines.json')
await fs.writeFile(lines, '')
const report = values.report ?? process.env['CHAOS_REPORT_FILE'] ?? path.join(folder, 'report.md')

const started = performance.now()
const args = ['run', '--config', 'test/vitest.config.ts', '--no-file-parallelism', ...files]
const vitest = spawn(path.join(root, 'node_modules/.bin/vitest'), args, {
  cwd: root,
  env: { ...process.env, CHAOS: 'long', CHAOS_LINES: lines },
  stdio: 'inherit',
  // A separate process group, so that servers and receivers end with it.
  detached: true,
})
// Completed lines are still printed.
let isInterrupted = false
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => {
    isInterrupted = true
    endGroup('SIGINT')
  })
const [code] = await once(vitest, 'exit')
endGroup('SIGKILL')

const came = (await fs.readFile(lines, 'utf8'))
  .split('\n')
  .filter(Boolean)
  .map((line): TableLine => JSON.parse(line))
const minutes = (performance.now() - started) / 60_000
if (came.length > 0) {
  process.stdout.write(`\n${asText(came)}\n`)
  await fs.writeFile(report, asMarkdown(came, minutes))
  process.stdout.write(`\nAs markdown: ${report}\n`)
}
const missed = came.filter(({ met }) => met === false).length
process.stdout.write(`${came.length} faults in ${minutes.toFixed(0)} minutes, ${outcome()}\n`)
process.exit(code === 0 && missed === 0 && !isInterrupted ? 0 : 1)

/** Never better than what was seen: a run that was ended, or failed otherwise, has met nothing. */
function outcome(): string {
  if (isInterrupted) return 'interrupted: what is not in the table was not shown'
  if (missed > 0) return `${missed} goals missed`
  if (code !== 0) return 'and tests failed: see above'
  return came.length === 0 ? 'all tests passed' : 'every goal met'
}

function endGroup(signal: NodeJS.Signals): void {
  try {
    if (vitest.pid !== undefined) process.kill(-vitest.pid, signal)
  } catch {
    // The process group is empty.
  }
}
