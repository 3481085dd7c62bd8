import fc from 'fast-check'
import { long } from '../../../chaos/length.ts'
import { createTestDatabase } from '../../../support/database.ts'
import { commands, type Command } from './commands.ts'
import { runSequence } from './sequence.ts'
import { createWorld } from './world.ts'

/** MODEL_RUNS=100000 for a longer run yet; MODEL_SEED repeats one that failed. */
const runs = Number(process.env['MODEL_RUNS'] ?? (long ? 2000 : 80))
const seed = process.env['MODEL_SEED']

/** A minute, and time enough for a long run on a slow machine. */
export const timeoutMs = 180_000 + runs * 250

/** Runs half of the sequences, after the fixed `examples`. Two test files share them, so that two workers run them. */
export async function runHalf({ examples, ...options }: { trouble: number; examples?: Command[][] }): Promise<void> {
  const database = await createTestDatabase()
  const world = await createWorld(database)
  try {
    const property = fc.asyncProperty(commands(options), (sequence) => runSequence(world, sequence))
    await fc.assert(property, {
      numRuns: Math.ceil(runs / 2),
      examples: (examples ?? []).map((sequence): [Command[]] => [sequence]),
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    })
  } finally {
    await world.close()
    await database.drop()
  }
}
