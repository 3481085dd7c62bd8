import { z } from 'zod'

export const severities = ['critical', 'warning', 'notice'] as const

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
export type Problem = z.infer<typeof problemSchema>

/** The most ids in one address, which must fit into the text of an issue (storable-text.ts). */
export const maxIdsInAddress = 50

/** The page of the only request, or the list of these requests. */
export function placeOf(requestIds: readonly string[]): Pick<Problem, 'affected' | 'href'> {
  const [only, ...others] = requestIds
  if (only === undefined) return { href: '/requests' }
  const href = others.length === 0 ? `/requests/${only}` : `/requests?ids=${requestIds.join(',')}`
  return { affected: requestIds, href }
}

/** The page of the issue with this cause, for problems that no other page shows. */
export function issueOf(cause: string): string {
  return `/issues?${new URLSearchParams({ cause }).toString()}`
}
