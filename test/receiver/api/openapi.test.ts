import { expect, it } from 'vitest'
import { z } from 'zod'
import {
  codesAt,
  expectAsWritten,
  expectErrorExamples,
  expectValidOpenApi,
  membersIn,
} from '../../support/openapi-document.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

type Content = { 'application/json'?: { schema: z.core.JSONSchema.JSONSchema; example?: unknown } }
type Call = {
  requestBody?: { content: Content }
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

const bodies = Object.entries<Record<string, Call>>(local.paths).flatMap(([path, methods]) =>
  Object.entries(methods).flatMap(([method, { requestBody }]) => {
    const body = requestBody?.content['application/json']
    return body ? [{ name: `${method} ${path}`, body }] : []
  }),
)

it.each(bodies)('$name has an example of its body that matches its schema', ({ body: { schema, example } }) => {
  expect(z.fromJSONSchema({ ...schema, $defs }).parse(example)).toEqual(example)
})

it('has examples of members that match their schemas', () => {
  const members = membersIn(local)
  expect(members.length).toBeGreaterThan(100)
  for (const [place, { example, ...schema }] of members)
    expect(z.fromJSONSchema({ ...schema, $defs }).safeParse(example), place).toMatchObject({ data: example })
})

it('contains no real name and no secret in its examples', () => {
  const text = JSON.stringify([
    ...membersIn(local).map(([, { example }]) => example),
    bodies.map(({ body }) => body.example),
  ])
  const hosts = [...text.matchAll(/https?:\/\/([^/"\\]+)/g)].map(([, host]) => host)
  expect(hosts).toContain('media.example.com')
  expect(hosts.filter((host) => !host?.endsWith('.example.com'))).toEqual([])
  expect(text.match(/whsec_[^"]*|v1=[0-9a-f]+/g)).toBeNull()
})

it('is valid OpenAPI 3.1', () => expectValidOpenApi(document))

it('shows each error in its envelope', () => expectErrorExamples(document))

it('names for each call the codes that it can give, and no others', () => {
  expect(codesAt(document, '409')).toEqual({
    'post /api/subscriptions': ['name_taken', 'too_many_subscriptions'],
    'post /api/deliveries/{id}/replay': ['landing_refused'],
    'post /api/requests': ['source_mismatch'],
    'post /api/requests/{id}/cancel': ['not_cancelable'],
  })
  const calls = Object.values<object>(document.paths).flatMap((methods) => Object.values(methods))
  const open = calls.filter(({ responses }) => '4XX' in responses)
  expect(Object.keys(codesAt(document, '431'))).toHaveLength(calls.length - open.length)
})

it('allows each type of a status with codes of several types', () => {
  const { schema } = local.paths['/api/requests/{id}/cancel'].post.responses['429'].content['application/json']
  const error = { type: 'rate_limit_error', code: 'no_call_left', message: 'the key has no call left' }
  expect(z.fromJSONSchema({ ...schema, $defs }).safeParse({ error })).toMatchObject({ success: true })
})

it('allows any type and code at a 4xx of the calls that pass on refusals of the provider', () => {
  const refusal = { error: { type: 'billing_error', code: 'insufficient_credits', message: 'the balance is too low' } }
  const calls = Object.values<object>(local.paths).flatMap((methods) => Object.values(methods))
  const open = calls.filter(({ responses }) => '4XX' in responses)
  expect(open).toHaveLength(5)
  for (const { operationId, responses } of open)
    for (const [status, { content }] of Object.entries<{ content: Content }>(responses)) {
      if (!status.startsWith('4')) continue
      const schema = content['application/json']?.schema
      expect(schema, `${operationId} ${status}`).toBeDefined()
      expect(z.fromJSONSchema({ ...schema, $defs }).safeParse(refusal).success, `${operationId} ${status}`).toBe(true)
    }
})

it('has the operations and schemas of openapi/receiver.json (npm run openapi writes it)', () =>
  expectAsWritten(document))
