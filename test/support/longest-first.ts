import path from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Starts the slowest files first, so that no worker ends alone with one of them. Generations are among them: their
// process has the lowest priority, and waits until the other tests leave it a core.
const longest = [
  'walk.test.ts',
  'drills-of-webhooks.test.ts',
  'drills-of-services.test.ts',
  'plans.test.ts',
  'now.test.ts',
  'now-live.test.ts',
  'now-charts.test.ts',
  'drills.test.ts',
  'load.test.ts',
  'chaos.test.ts',
  'generation.test.ts',
  'video-references.test.ts',
  'first-look.test.ts',
  'model-page.test.ts',
  'deliveries.test.ts',
  'postgres-at-start.test.ts',
  'request.test.ts',
  'references.test.ts',
  'laptop.test.ts',
  'local-video.test.ts',
  'program.test.ts',
  'receiver.test.ts',
  'webhook.test.ts',
  'intake.test.ts',
  'kill.test.ts',
  'interleavings.test.ts',
  'job.test.ts',
  'bounds.test.ts',
  'model.test.ts',
  'poisoned-rows.test.ts',
  'other-keys.test.ts',
  'standby.test.ts',
  'connections.test.ts',
  'sources.test.ts',
  'postgres-crash.test.ts',
  'postgres-away.test.ts',
  'steady.test.ts',
  'trouble.test.ts',
  'lost-connections.test.ts',
  'ffmpeg.test.ts',
  'archive.test.ts',
  'call-budget.test.ts',
  'reload.test.ts',
  'large-indexes.test.ts',
  'navigation.test.ts',
  'progress.test.ts',
  'traces.test.ts',
  'provider-answers.test.ts',
  'subscriptions.test.ts',
  'parked.test.ts',
  'arrival-partitions.test.ts',
  'disk.test.ts',
  'filters.test.ts',
  'on-call.test.ts',
  'recipes.test.ts',
  'environments.test.ts',
  'shares.test.ts',
  'quarantine.test.ts',
  'landing-memory.test.ts',
  'processing.test.ts',
  'reconciler.test.ts',
  'framing.test.ts',
  'inline.test.ts',
  'removal.test.ts',
  'poller.test.ts',
  'arrival-log.test.ts',
  'openapi.test.ts',
  'contract.test.ts',
  'roles.test.ts',
  'requests.test.ts',
  'delivery.test.ts',
  'search.test.ts',
  'link-keys.test.ts',
  'stopping.test.ts',
  'postgres.test.ts',
  'no-answer.test.ts',
  'recovery.test.ts',
  'fuzz.test.ts',
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
