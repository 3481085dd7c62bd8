import path from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Starts the slowest files first, so that no worker ends alone with one of them.
const longest = [
  'now.test.ts',
  'twelve-drills.test.ts',
  'first-look.test.ts',
  'plans.test.ts',
  'walk.test.ts',
  'deliveries.test.ts',
  'arrival-partitions.test.ts',
  'archive.test.ts',
  'webhook.test.ts',
  'large-indexes.test.ts',
  'postgres-at-start.test.ts',
  'ffmpeg.test.ts',
  'interleavings.test.ts',
  'progress.test.ts',
  'traces.test.ts',
  'model-page.test.ts',
  'request.test.ts',
  'embedded-postgres.test.ts',
  'drills.test.ts',
  'program.test.ts',
  'navigation.test.ts',
  'call-budget.test.ts',
  'recovery.test.ts',
  'lost-connections.test.ts',
  'inline.test.ts',
  'no-answer.test.ts',
  'video-references.test.ts',
  'reconciler.test.ts',
  'requests.test.ts',
  'laptop.test.ts',
  'list-reader.test.ts',
  'receiver.test.ts',
  'heavy-metadata.test.ts',
  'delivery.test.ts',
  'postgres-away.test.ts',
  'link-keys.test.ts',
  'stopping.test.ts',
  'postgres.test.ts',
  'queue.test.ts',
  'loop.test.ts',
  'hangup.test.ts',
  'search.test.ts',
  'chaos.test.ts',
  'provider-answers.test.ts',
  'parked.test.ts',
  'subscriptions.test.ts',
  'follow-ups.test.ts',
  'environments.test.ts',
  'logs.test.ts',
  'full-disk.test.ts',
  'job.test.ts',
  'trouble.test.ts',
  'filters.test.ts',
  'sessions.test.ts',
  'migrate.test.ts',
  'readiness.test.ts',
]

const placeOf = ({ moduleId }: TestSpecification) => {
  const at = longest.indexOf(path.basename(moduleId))
  return at === -1 ? longest.length : at
}

/** Also on a machine that has never run them, where vitest knows nothing but their sizes. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).toSorted((a, b) => placeOf(a) - placeOf(b))
  }
}
