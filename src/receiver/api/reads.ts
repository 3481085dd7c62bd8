import { z } from 'zod'
import { parseFilters } from '../queries/filters.ts'
import { pageSchema } from '../queries/page.ts'
import { idPathSchema, unknown, uuidParam, type Content, type Operation } from './operation.ts'

type About = { operationId: string; summary: string; description?: string }

/** Makes a GET that takes no parameters and answers what `read` returns. */
export function shown(
  path: string,
  { answer, read, ...about }: About & { answer: Content; read: () => Promise<unknown> },
): Operation {
  return {
    method: 'get',
    path,
    ...about,
    answers: { 200: answer },
    answer: async (_req, res) => res.json(await read()),
  }
}

/** Makes a GET that answers a whole list. The list is always short, so it has no pages. */
export function whole<T>(
  path: string,
  { item, read, ...about }: About & { item: z.ZodType<T>; read: () => Promise<readonly T[]> },
): Operation {
  const answer = { description: 'All of them', schema: z.object({ data: z.array(item) }) }
  return shown(path, { ...about, answer, read: async () => ({ data: await read() }) })
}

/** A call that reads the item with the id in the path. Undefined is answered 404. */
export function oneById(
  path: string,
  { answer, read, ...about }: About & { answer: Content; read: (id: string) => Promise<object | undefined> },
): Operation {
  return {
    method: 'get',
    path,
    ...about,
    requestParams: { path: idPathSchema },
    answers: { 200: answer },
    errors: ['not_found'],
    answer: async (req, res) => {
      const item = await read(uuidParam(req, 'id'))
      if (!item) throw unknown(req)
      res.json(item)
    },
  }
}

type Filtered<Filters extends z.ZodObject> = About & {
  filters: Filters
  answer: Content
  read: (wanted: z.infer<Filters>) => Promise<unknown>
}

/** Makes a GET that answers what its filters select. */
export function filtered<Filters extends z.ZodObject>(
  path: string,
  { filters, answer, read, ...about }: Filtered<Filters>,
): Operation {
  return {
    method: 'get',
    path,
    ...about,
    requestParams: { query: filters },
    answers: { 200: answer },
    errors: ['invalid_filter'],
    answer: async (req, res) => res.json(await read(parseFilters(filters, req.query))),
  }
}

export function onePage(item: z.ZodType): Content {
  return { description: 'One page', schema: pageSchema(item) }
}
