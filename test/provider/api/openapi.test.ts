import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { createLogger } from '../../../src/platform/logger.ts'
import { createApi } from '../../../src/provider/api/api.ts'
import type { ApiDeps } from '../../../src/provider/api/callers.ts'
import { expectErrorExamples, expectValidOpenApi, membersIn } from '../../support/openapi-document.ts'
import { testSettings } from '../support/running-provider.ts'

type Content = { 'application/json': { schema: z.core.JSONSchema.JSONSchema; example?: unknown } }
type Call = { requestBody?: { content: Content } }

const file = path.resolve(import.meta.dirname, '../../../src/provider/api/openapi.json')
const written = JSON.parse(await fs.readFile(file, 'utf8'))

/** The document with each `$ref` replaced by its component. */
const document = JSON.parse(JSON.stringify(written), (_key, value) => resolved(value))

function resolved(value: { $ref?: string }): unknown {
  if (typeof value?.$ref !== 'string') return value
  const found = value.$ref
    .split('/')
    .slice(1)
    .reduce<unknown>((at, name) => Reflect.get(Object(at), name), written)
  return JSON.parse(JSON.stringify(found), (_key, member) => resolved(member))
}

const calls = Object.entries<Record<string, Call>>({ ...document.paths, ...document.webhooks }).flatMap(
  ([path, methods]) => Object.entries(methods).map(([method, call]) => [`${method} ${path}`, call] as const),
)
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

it('is valid OpenAPI 3.1', () => expectValidOpenApi(written))

it('shows each error in its envelope', () => expectErrorExamples(document))

it('has an operation for each route below /v1, and no others', async () => {
  const settings = { ...(await testSettings('postgres://127.0.0.1:1/none')), production: true }
  // No request is made, so the routes need nothing else.
  const { router } = createApi({ logger: createLogger('silent'), settings } as ApiDeps)
  const routes = router.stack
    .flatMap(({ handle }) => Reflect.get(handle, 'stack') ?? [])
    .flatMap(({ route }) => (route ? Object.keys(route.methods).map((method) => `${method} /v1${route.path}`) : []))
    .filter((route) => /^[a-z]+ \/v1\/(?!docs|openapi\.json)/.test(route))
    .map((route) => route.replaceAll(':id', ':request_id').replaceAll(/:(\w+)/g, '{$1}'))
  expect(routes.toSorted()).toEqual(
    calls
      .map(([name]) => name)
      .filter((name) => name.includes(' /v1/'))
      .toSorted(),
  )
})
