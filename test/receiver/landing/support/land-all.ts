import { createLogger } from '../../../../src/platform/logger.ts'
import { createPool } from '../../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../../src/platform/postgres/time.ts'
import type { LandingDeps } from '../../../../src/receiver/landing/landing-deps.ts'
import { keysOf, liveKey } from '../../../support/receiver.ts'
import { workOnce } from '../../../support/work-once.ts'

/** A separate process that lands all pending deliveries, and prints the counts. */
const keys = keysOf(liveKey)
const pool = createPool({ url: process.argv[2] ?? '', max: 10, keepsPlans: true })
const deps: LandingDeps & { clock: () => Date } = {
  db: pool.db,
  keys: () => keys,
  mediaHosts: undefined,
  clock: () => new Date(),
  time: postgresTime,
  logger: createLogger('error'),
  onProcessed: () => {},
}
const sum = { rounds: 0, landed: 0, failed: 0, parked: 0 }
// Not maxRSS of resourceUsage(): on Linux a new process inherits the peak of the one that started it.
let peakBytes = 0
const measure = () => (peakBytes = Math.max(peakBytes, process.memoryUsage.rss()))
const measuring = setInterval(measure, 5)
for (;;) {
  const { claimed, landed, failed, parked } = await workOnce(deps)
  if (claimed === 0) break
  measure()
  sum.rounds += 1
  sum.landed += landed
  sum.failed += failed
  sum.parked += parked
}
clearInterval(measuring)
await pool.close()
process.stdout.write(JSON.stringify({ ...sum, rss_mb: Math.round(peakBytes / 1024 ** 2) }))
