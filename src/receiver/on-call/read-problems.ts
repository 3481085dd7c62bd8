import { z } from 'zod'
import type { Database } from '../../platform/postgres/postgres.ts'
import { severities, type Problem } from '../domain/problem.ts'
import { readWithin } from '../queries/deadline.ts'
import { readNumbers, type ProblemsOptions } from './numbers.ts'
import { problemsOf } from './problems.ts'

export const problemSchema = z
  .object({
    severity: z.enum(severities),
    text: z.string().describe('What is wrong, its effect and what to do, in a few sentences.'),
    cause: z.string().describe('The kind, as `kind` or `kind:subject`.'),
    href: z.string().describe('The page of the console that shows it and acts on it.'),
    count: z.int().optional().describe('How many arrivals, deliveries or other items are affected now.'),
    affected: z
      .array(z.string())
      .readonly()
      .optional()
      .describe('The keys, senders, roles, subscriptions or requests that are affected.'),
  })
  .meta({ id: 'Problem' })

/** The problems of this moment, worst first. */
export async function readProblems(db: Database, options: ProblemsOptions): Promise<Problem[]> {
  const { numbers } = await readWithin(db, (tx) => readNumbers(tx, options))
  return problemsOf(numbers)
}
