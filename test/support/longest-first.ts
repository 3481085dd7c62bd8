import path from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Starts the slowest files first, so that no worker ends alone with one of them.
const longest = [
  'program.test.ts',
  'job.test.ts',
  'chaos.test.ts',
  'twelve-drills.test.ts',
  'now.test.ts',
  'walk.test.ts',
  'load.test.ts',
  'first-look.test.ts',
  'generation.test.ts',
  'references.test.ts',
  'reload.test.ts',
  'drills.test.ts',
  'filters.test.ts',
  'laptop.test.ts',
  'postgres-at-start.test.ts',
  'webhook.test.ts',
  'whole-loop.test.ts',
  'deliveries.test.ts',
  'model-page.test.ts',
  'ffmpeg.test.ts',
  'video-references.test.ts',
  'plans.test.ts',
  'heavy-metadata.test.ts',
  'other-keys.test.ts',
  'recovery.test.ts',
  'kill.test.ts',
  'large-indexes.test.ts',
  'framing.test.ts',
  'lost-connections.test.ts',
  'poisoned-rows.test.ts',
  'landing-bytes.test.ts',
  'interleavings.test.ts',
  'standby.test.ts',
  'shares.test.ts',
  'arrival-partitions.test.ts',
  'steady.test.ts',
  'trouble.test.ts',
  'overload.test.ts',
  'archive.test.ts',
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
