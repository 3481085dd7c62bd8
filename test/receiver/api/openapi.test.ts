import { expect, it } from 'vitest'
import { z } from 'zod'
import { examples as coreExamples } from '../../../src/receiver/api/examples/examples.ts'
import { subscriptionExamples } from '../../../src/receiver/subscriptions/subscription-examples.ts'
import { codesAt, expectAsWritten, expectErrorExamples, expectValidOpenApi } from '../../support/openapi-document.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

const examples = { ...coreExamples, ...subscriptionExamples }

type Content = { 'application/json'?: { schema: z.core.JSONSchema.JSONSchema; example?: unknown } }
type Call = {
  operationId: string
  requestBody?: { content: Content }
  responses: Record<string, { content?: Content }>
}

const { receiver, stop } = await withReceiver()
const document = (await call(receiver, 'GET /api/openapi.json')).json
await stop()
// Where a schema by itself looks for what it refers to; and zod takes a uuid for one of RFC 9562, which no delivery's id is.
const local = JSON.parse(
  JSON.stringify(document)
    .replaceAll('#/components/schemas/', '#/$defs/')
    .replaceAll('"format":"uuid","pattern":', '"pattern":'),
)
const $defs = local.components.schemas

const calls = Object.entries<Record<string, Call>>(local.paths).flatMap(([path, methods]) =>
  Object.entries(methods).flatMap(([method, one]) => {
    const answers = Object.entries(one.responses).flatMap(([status, { content }]) =>
      status < '3' && content ? [content] : [],
    )
    const body = one.requestBody?.content['application/json']
    const jsons = [...(body ? [body] : []), ...answers.flatMap(({ 'application/json': json }) => (json ? [json] : []))]
    return jsons.length > 0 ? [{ name: `${method} ${path}`, operationId: one.operationId, body, jsons }] : []
  }),
)

it.each(calls)('$name has examples that match its schemas, of each body', ({ jsons, body }) => {
  if (body) expect(body.example).toBeDefined()
  for (const { schema, example } of jsons.filter((json) => json.example !== undefined)) {
    const parsed = z.fromJSONSchema({ ...schema, $defs }).safeParse(example)
    expect(parsed.error?.issues ?? []).toEqual([])
    expect(parsed.data).toEqual(example)
  }
})

it('has no examples of unknown calls', () => {
  expect(calls.length).toBeGreaterThan(30)
  const known = calls.map(({ operationId }) => operationId)
  expect(Object.keys(examples).filter((operationId) => !known.includes(operationId))).toEqual([])
})

it('contains no real name and no secret in its examples', () => {
  const text = JSON.stringify(examples)
  const hosts = [...text.matchAll(/https?:\/\/([^/"\\]+)/g)].map(([, host]) => host)
  expect(hosts).toContain('media.example.com')
  expect(hosts.filter((host) => !host?.endsWith('.example.com'))).toEqual([])
  expect(text.match(/whsec_(?!it_is_shown_here_and_nowhere_else")[^"]*|v1=[0-9a-f]+/g)).toBeNull()
})

it('is valid OpenAPI 3.1', () => expectValidOpenApi(document))

it('shows each error in its envelope', () => expectErrorExamples(document))

it('names for each call the codes that it can give, and no others', () => {
  expect(codesAt(document, '409')).toEqual({
    'post /api/generations': ['idempotency_key_reuse'],
    'post /api/subscriptions': ['name_taken', 'too_many_subscriptions'],
    'post /api/deliveries/{id}/replay': ['landing_refused'],
    'post /api/requests': ['source_mismatch'],
    'post /api/requests/{id}/cancel': ['not_cancelable'],
  })
  expect(Object.keys(codesAt(document, '431'))).toHaveLength(
    Object.values<object>(document.paths).flatMap((methods) => Object.keys(methods)).length,
  )
})

it('has the operations and schemas of openapi/receiver.json (npm run openapi writes it)', () =>
  expectAsWritten('receiver', document))
