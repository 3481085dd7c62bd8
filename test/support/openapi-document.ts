import fs from 'node:fs/promises'
import path from 'node:path'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect } from 'vitest'
import type { z } from 'zod'

type ErrorSchema = { properties?: { error?: { properties?: { code?: { enum?: string[] } } } } }
type Answer = { content?: { 'application/json'?: { schema?: ErrorSchema; example?: unknown } } }
type Document = {
  paths: Record<string, Record<string, { responses: Record<string, Answer> }>>
  webhooks?: Record<string, object>
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

type Member = z.core.JSONSchema.JSONSchema & { example?: unknown }

/** The members of every schema that have an example, by their place in the document. */
export function membersIn(value: unknown, place = ''): [place: string, member: Member][] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, member]): [string, Member][] => [
    ...(place.endsWith('/properties') && 'example' in member ? [[`${place}/${name}`, member] as [string, Member]] : []),
    ...(name === 'example' ? [] : membersIn(member, `${place}/${name}`)),
  ])
}

/** The document is valid OpenAPI 3.1, and no schema in it has a keyword that its type does not know. */
export async function expectValidOpenApi(document: Document): Promise<void> {
  const { valid, errors } = await new Validator().validate(structuredClone(document))
  expect({ valid, errors }).toEqual({ valid: true, errors: undefined })
  const local: Document = JSON.parse(JSON.stringify(document).replaceAll('#/components/schemas/', 'all#/$defs/'))
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, validateFormats: false })
    .addVocabulary(['example'])
    .addSchema({ $id: 'all', $defs: local.components?.schemas ?? {} })
  const problems = schemasIn(local).flatMap(([pointer, schema]) => {
    try {
      ajv.compile(schema)
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

const file = path.resolve(import.meta.dirname, '../../openapi/receiver.json')

/**
 * `openapi/receiver.json` has the same operations, webhooks and schemas. Wording, examples and order are not
 * compared. With WRITE_OPENAPI set (`npm run openapi`) the document is written first.
 */
export async function expectAsWritten(document: Document): Promise<void> {
  if (process.env['WRITE_OPENAPI'] !== undefined)
    await fs.writeFile(file, `${JSON.stringify(document, undefined, 2)}\n`)
  const written: Document = JSON.parse(await fs.readFile(file, 'utf8'))
  expect(structureOf(document)).toEqual(structureOf(written))
}

function structureOf({ paths, webhooks, components }: Document): unknown {
  const operations = Object.entries({ ...paths, ...webhooks }).flatMap(([at, methods]) =>
    Object.entries(methods).map(([method, operation]) => [`${method} ${at}`, withoutWording(operation)]),
  )
  return { operations: Object.fromEntries(operations), schemas: withoutWording(components?.schemas, true) }
}

const wording = new Set(['description', 'summary', 'title', 'example', 'examples'])

/** Members of `properties` and the like are named by the API, so a property may be called `description`. */
function withoutWording(value: unknown, namesAreOurs = false): unknown {
  if (Array.isArray(value)) return value.map((member) => withoutWording(member))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => namesAreOurs || !wording.has(name))
      .map(([name, member]) => [name, withoutWording(member, !namesAreOurs && name === 'properties')]),
  )
}
