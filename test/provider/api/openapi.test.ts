import { expect, it } from 'vitest'
import { z } from 'zod'
import { openApiDocument } from '../../../src/provider/api/openapi.ts'

type Content = { 'application/json': { schema: z.core.JSONSchema.JSONSchema; example?: unknown } }
type Call = { tags?: string[]; summary?: string; requestBody?: { content: Content }; responses: Record<string, { content?: Content }> }

// What is served: what is no JSON is none of it.
const document = JSON.parse(JSON.stringify(openApiDocument('https://api.example.com')))
const calls = Object.entries<Record<string, Call>>({ ...document.paths, ...document.webhooks }).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, call]) => [`${method} ${path}`, call] as const),
)

it.each(calls)('%s has a tag that is explained, and a summary', (_name, { tags, summary }) => {
  expect(document.tags.map(({ name }: { name: string }) => name)).toEqual(expect.arrayContaining(tags ?? ['a tag']))
  expect(tags).toHaveLength(1)
  expect(summary).toMatch(/^[A-Z][^.]+$/)
})

it.each(calls)('%s has examples of what is sent and answered, as its schemas allow them', (_name, { requestBody, responses }) => {
  const answers = Object.entries(responses).flatMap(([status, { content }]) => (status < '3' && content ? [content] : []))
  const contents = [...(requestBody ? [requestBody.content] : []), ...answers]
  expect(contents.length).toBeGreaterThan(0)
  for (const {
    'application/json': { schema, example },
  } of contents) {
    const parsed = z.fromJSONSchema(schema).safeParse(example)
    expect(parsed.error?.issues ?? []).toEqual([])
    expect(parsed.data).toEqual(example)
  }
})

it('shows each error as it is answered', () => {
  const answers = Object.values<Record<string, Call>>(document.paths).flatMap((methods) =>
    Object.values(methods).flatMap(({ responses }) => Object.entries(responses)),
  )
  const errors = answers.filter(([status]) => /^[45]\d\d$/.test(status))
  expect(errors.length).toBeGreaterThan(20)
  for (const [status, { content }] of errors) {
    const shown = content?.['application/json']?.example
    expect(shown, status).toEqual({
      error: { type: expect.stringMatching(/_error$/), code: expect.stringMatching(/^[a-z_]+$/), message: expect.stringMatching(/\w/) },
    })
  }
})

it('is as docs/api/provider.json has it: a change of the API is seen by whoever makes it (vitest -u writes it)', async () => {
  await expect(`${JSON.stringify(document, undefined, 2)}\n`).toMatchFileSnapshot('../../../docs/api/provider.json')
})
