import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import type { z } from 'zod'
import { jsonType, named, placeOf, plainWords } from '../../platform/plain-words.ts'
import type { Catalog } from './catalog-model.ts'
import { catalogFileSchema } from './catalog-schema.ts'

export type ParsedCatalog = { kind: 'valid'; catalog: Catalog } | { kind: 'broken'; problems: readonly string[] }

const require = createRequire(import.meta.url)

/** Parses the YAML or JSON of a catalog file. Each problem has its place: a line, or the path of a member. */
export function parseCatalog(text: string): ParsedCatalog {
  // Loaded on use: most commands read no catalog.
  const yaml: typeof import('yaml') = require('yaml')
  const document = yaml.parseDocument(text)
  const faults = [...document.errors, ...document.warnings]
  // The further lines of a message quote the file.
  if (faults.length > 0) return broken(faults.map(({ message }) => message.split(':\n', 1)[0] ?? message))

  let value: unknown
  try {
    value = document.toJS()
  } catch (error) {
    // An alias without anchor, or multiplying aliases.
    return broken([error instanceof Error ? error.message : String(error)])
  }
  const parsed = catalogFileSchema.safeParse(value, plainWords)
  if (!parsed.success) return broken(parsed.error.issues.map((issue) => wordsOf(issue, value)))
  return { kind: 'valid', catalog: new Map(parsed.data.models.map((model) => [model.slug, model])) }
}

let builtIn: Catalog | undefined

/** The packaged catalog. */
export function builtInCatalog(): Catalog {
  if (builtIn !== undefined) return builtIn
  const file = path.join(import.meta.dirname, 'catalog.yaml')
  const parsed = parseCatalog(fs.readFileSync(file, 'utf8'))
  if (parsed.kind === 'broken') throw new Error(`${file} is invalid: ${parsed.problems.join('; ')}`)
  return (builtIn = parsed.catalog)
}

function broken(problems: readonly string[]): ParsedCatalog {
  // At most 20 problems of a file are shown. The others appear after these are corrected.
  const more = problems.length > 20 ? [`and ${problems.length - 20} more problems`] : []
  return { kind: 'broken', problems: [...problems.slice(0, 20), ...more] }
}

/**
 * Puts an issue into words, with the slug of its model: `models.dunes.pricing.multipliers.size: has no factor for l`.
 */
function wordsOf(issue: z.core.$ZodIssue, value: unknown): string {
  const [models = '', index = '', ...member] = issue.path
  const slug = valueAt(value, [models, index, 'slug'])
  const place = placeOf(typeof slug === 'string' ? [models, slug, ...member] : issue.path)
  if (place === '' && issue.code === 'invalid_type')
    return [
      value === null ? 'the file is empty' : `the file contains ${named(jsonType(value))}`,
      'It must contain an object with the member models, an array',
    ].join('. ')
  const isMissing = issue.path.length > 0 && valueAt(value, issue.path) === undefined
  return `${place || 'the file'}: ${isMissing ? 'is missing' : issue.message}`
}

function valueAt(value: unknown, steps: readonly PropertyKey[]): unknown {
  return steps.reduce<unknown>(
    (inner, step) => (typeof inner === 'object' && inner !== null ? Reflect.get(inner, step) : undefined),
    value,
  )
}
