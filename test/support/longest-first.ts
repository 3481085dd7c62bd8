import path from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Starts the slowest files first, so that no worker ends alone with one of them.
const longest = [
  'large-indexes.test.ts',
  'real-balancers.test.ts',
  'webhook.test.ts',
  'framing.test.ts',
  'walk.test.ts',
  'now.test.ts',
  'postgres-at-start.test.ts',
  'laptop.test.ts',
  'video-references.test.ts',
  'references.test.ts',
  'kill.test.ts',
  'plans.test.ts',
  'lost-connections.test.ts',
  'interleavings.test.ts',
  'ffmpeg.test.ts',
  'load.test.ts',
  'generation.test.ts',
  'deliveries.test.ts',
  'filters.test.ts',
  'first-look.test.ts',
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
