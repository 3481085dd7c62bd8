import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect } from 'vitest'

type ErrorSchema = { properties?: { error?: { properties?: { code?: { enum?: string[] } } } } }
type Answer = { content?: { 'application/json'?: { schema?: ErrorSchema; example?: unknown } } }
type Document = {
  paths: Record<string, Record<string, { responses: Record<string, Answer> }>>
  components?: { schemas?: Record<string, object> }
}

const envelope = {
  type: expect.stringMatching(/_error$/),
  code: expect.stringMatching(/^[a-z_]+$/),
  message: expect.stringMatching(/\w/),
}

/** Each error answer that an OpenAPI document names has an example, in the envelope of both APIs. */
export function expectErrorExamples({ paths }: Document): void {
  const answers = Object.values(paths).flatMap((methods) =>
    Object.values(methods).flatMap(({ responses }) => Object.entries(responses)),
  )
  const errors = answers.filter(([status]) => /^[45]\d\d$/.test(status))
  expect(errors.length).toBeGreaterThan(20)
  for (const [status, { content }] of errors)
    expect(content?.['application/json']?.example, status).toEqual({ error: envelope })
}

/** Of each call that can be answered with this status: the codes that it can carry. */
export function codesAt(document: Document, status: string): Record<string, string[]> {
  const calls = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { responses }]) => {
      const schema = responses[status]?.content?.['application/json']?.schema
      return [`${method} ${path}`, schema?.properties?.error?.properties?.code?.enum ?? []] as const
    }),
  )
  return Object.fromEntries(calls.filter(([, codes]) => codes.length > 0))
}

/** The document is valid OpenAPI 3.1, and no schema in it has a keyword that its type does not know. */
export async function expectValidOpenApi(document: Document): Promise<void> {
  const { valid, errors } = await new Validator().validate(structuredClone(document))
  expect({ valid, errors }).toEqual({ valid: true, errors: undefined })
  const local: Document = JSON.parse(JSON.stringify(document).replaceAll('#/components/schemas/', '#/$defs/'))
  const $defs = local.components?.schemas ?? {}
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, validateFormats: false }).addVocabulary(['example'])
  const problems = schemasIn(local).flatMap(([pointer, schema]) => {
    try {
      ajv.compile({ ...schema, $defs })
      return []
    } catch (error) {
      return [`${pointer}: ${String(error)}`]
    }
  })
  expect(problems).toEqual([])
}

function schemasIn(value: unknown, pointer = ''): [pointer: string, schema: object][] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, member]) => {
    if (name === 'example') return []
    if (name === 'schema' || pointer === '/components/schemas') return [[`${pointer}/${name}`, member]]
    return schemasIn(member, `${pointer}/${name}`)
  })
}
