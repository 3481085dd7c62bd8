import { Counter, Gauge, type Registry } from 'prom-client'
import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { countWaitingCopies } from './copies.ts'

const readDeadlineMs = 3000

/**
 * Registers the archive's metrics (docs/observe.md). The backlog is read at each scrape, and left out if that fails.
 */
export function createArchiveMetrics({ registry, db, logger }: { registry: Registry; db: Database; logger: Logger }) {
  const registers = [registry]
  void new Gauge({
    name: 'mediadock_archive_waiting',
    help: 'Media that wait for their copy in the archive, counted up to 10,000',
    registers,
    async collect() {
      try {
        this.set(await withDeadline(countWaitingCopies(db), readDeadlineMs, 'counting media to archive'))
      } catch (error) {
        this.remove()
        logger.warn({ err: error }, 'the metrics leave out mediadock_archive_waiting')
      }
    },
  })
  const copies = new Counter({
    name: 'mediadock_archive_copies_total',
    help: 'Attempts to copy a media into the archive, by outcome',
    labelNames: ['outcome'],
    registers,
  })
  const bytes = new Counter({
    name: 'mediadock_archived_bytes_total',
    help: 'Bytes of media copied into the archive',
    registers,
  })
  // Starts at 0: a counter that first appears with its first event shows no increase.
  for (const outcome of ['archived', 'given_up', 'store_failed']) copies.inc({ outcome }, 0)
  return { copies, bytes }
}
