import type { Request } from 'express'
import { z } from 'zod'
import { parseFilters } from '../queries/filters.ts'
import { pageSchema } from '../queries/page.ts'
import { unknown, type Content, type Operation } from './operation.ts'

type Reading = Omit<Operation, 'method' | 'path' | 'answers' | 'answer'> & { answer: Content }

/** Makes a GET that answers what `read` returns. Undefined is answered 404. */
export function shown(
  path: string,
  { answer, read, ...about }: Reading & { read: (req: Request) => Promise<object | undefined> },
): Operation {
  return {
    method: 'get',
    path,
    ...about,
    answers: { 200: answer },
    answer: async (req, res) => {
      const item = await read(req)
      if (item === undefined) throw unknown(req)
      res.json(item)
    },
  }
}

/** Makes a GET that answers a whole list. The list is always short, so it has no pages. */
export function whole<T>(
  path: string,
  { item, read, ...about }: Omit<Reading, 'answer'> & { item: z.ZodType<T>; read: () => Promise<readonly T[]> },
): Operation {
  const answer = { description: 'All of them', schema: z.object({ data: z.array(item) }) }
  return shown(path, { ...about, answer, read: async () => ({ data: await read() }) })
}

type Filtered<Filters extends z.ZodObject> = Reading & {
  filters: Filters
  read: (wanted: z.infer<Filters>) => Promise<object>
}

/** Makes a GET that answers what its filters select. */
export function filtered<Filters extends z.ZodObject>(
  path: string,
  { filters, read, ...about }: Filtered<Filters>,
): Operation {
  const more = { requestParams: { query: filters }, errors: ['invalid_filter'] as const }
  return shown(path, { ...about, ...more, read: (req) => read(parseFilters(filters, req.query)) })
}

export function onePage(item: z.ZodType): Content {
  return { description: 'One page', schema: pageSchema(item) }
}
