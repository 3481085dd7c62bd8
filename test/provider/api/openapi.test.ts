import { expect, it } from 'vitest'
import { z } from 'zod'
import { openApiDocument } from '../../../src/provider/api/openapi.ts'
import {
  codesAt,
  expectAsWritten,
  expectErrorExamples,
  expectValidOpenApi,
  membersIn,
} from '../../support/openapi-document.ts'

type Content = { 'application/json': { schema: z.core.JSONSchema.JSONSchema; example?: unknown } }
type Call = {
  tags?: string[]
  summary?: string
  requestBody?: { content: Content }
}

// The document as served, which contains only JSON.
const document = JSON.parse(JSON.stringify(openApiDocument('https://api.example.com')))
const calls = Object.entries<Record<string, Call>>({ ...document.paths, ...document.webhooks }).flatMap(
  ([path, methods]) => Object.entries(methods).map(([method, call]) => [`${method} ${path}`, call] as const),
)

it.each(calls)('%s has a described tag and a summary', (_name, { tags, summary }) => {
  expect(document.tags.map(({ name }: { name: string }) => name)).toEqual(expect.arrayContaining(tags ?? ['a tag']))
  expect(tags).toHaveLength(1)
  expect(summary).toMatch(/^[A-Z][^.]+$/)
})

const bodies = calls.flatMap(([name, { requestBody }]) =>
  requestBody ? [[name, requestBody.content['application/json']] as const] : [],
)

it.each(bodies)('%s has an example of its body that matches its schema', (_name, { schema, example }) => {
  expect(z.fromJSONSchema(schema).parse(example)).toEqual(example)
})

it('has examples of members that match their schemas', () => {
  const members = membersIn(document)
  expect(members.length).toBeGreaterThan(20)
  for (const [place, { example, ...schema }] of members)
    expect(z.fromJSONSchema(schema).safeParse(example), place).toMatchObject({ data: example })
})

it('is valid OpenAPI 3.1', () => expectValidOpenApi(document))

it('shows each error in its envelope', () => expectErrorExamples(document))

it('names for each call the codes that it can give, and no others', () => {
  expect(codesAt(document, '409')).toEqual({
    'post /v1/models/{model}': ['idempotency_key_reuse', 'request_in_progress'],
    'post /v1/requests/{request_id}/cancel': ['not_cancelable'],
  })
  expect(Object.keys(codesAt(document, '431'))).toHaveLength(8)
})

it('has the operations and schemas of openapi/provider.json (npm run openapi writes it)', () =>
  expectAsWritten('provider', document))
