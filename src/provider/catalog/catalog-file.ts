import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import type { Document, LineCounter } from 'yaml'
import type { z } from 'zod'
import { jsonType, named, placeOf, plainWords } from '../../platform/plain-words.ts'
import type { Catalog } from './catalog-model.ts'
import { catalogFileSchema } from './catalog-schema.ts'

export type CatalogProblem = { line: number; message: string }
export type ParsedCatalog =
  /** `lineOf` finds the line of a model's engine settings. */
  | { kind: 'valid'; catalog: Catalog; lineOf: (slug: string) => number }
  | { kind: 'broken'; problems: readonly CatalogProblem[] }

const require = createRequire(import.meta.url)

/** Parses the YAML or JSON of a catalog file. Each problem has its line. */
export function parseCatalog(text: string): ParsedCatalog {
  // Loaded on use: most commands read no catalog.
  const yaml: typeof import('yaml') = require('yaml')
  const lines = new yaml.LineCounter()
  const document = yaml.parseDocument(text, { lineCounter: lines, prettyErrors: false })
  const faults = [...document.errors, ...document.warnings]
  if (faults.length > 0) return broken(faults.map(({ message, pos }) => ({ line: lineAt(lines, pos[0]), message })))

  let value: unknown
  try {
    value = document.toJS()
  } catch (error) {
    // The error of an alias without anchor, or of multiplying aliases, has no position.
    return broken([{ line: 1, message: error instanceof Error ? error.message : String(error) }])
  }
  const parsed = catalogFileSchema.safeParse(value, plainWords)
  const find = createLineFinder(yaml, document, lines)
  if (!parsed.success) {
    return broken(parsed.error.issues.map((issue) => ({ line: find(whereOf(issue)), message: wordsOf(issue, value) })))
  }
  const { models } = parsed.data
  const lineOf = (slug: string) => find(['models', models.findIndex((model) => model.slug === slug), 'engine_settings'])
  return { kind: 'valid', catalog: new Map(models.map((model) => [model.slug, model])), lineOf }
}

let builtIn: Catalog | undefined

/** The packaged catalog. */
export function builtInCatalog(): Catalog {
  if (builtIn !== undefined) return builtIn
  const file = path.join(import.meta.dirname, 'catalog.yaml')
  const parsed = parseCatalog(fs.readFileSync(file, 'utf8'))
  if (parsed.kind === 'broken')
    throw new Error(`${file} is invalid: ${parsed.problems.map(({ message }) => message).join('; ')}`)
  return (builtIn = parsed.catalog)
}

function broken(problems: readonly CatalogProblem[]): ParsedCatalog {
  // At most 20 problems of a file are shown. The others appear after these are corrected.
  const shown = problems.slice(0, 20)
  const last = shown.at(-1)
  if (last === undefined || shown.length === problems.length) return { kind: 'broken', problems: shown }
  return {
    kind: 'broken',
    problems: [...shown, { line: last.line, message: `and ${problems.length - shown.length} more problems` }],
  }
}

type Issue = z.core.$ZodIssue

/** The place of an issue. An unknown key is reported at its own line, not at the object around it. */
function whereOf(issue: Issue): readonly PropertyKey[] {
  return issue.code === 'unrecognized_keys' ? [...issue.path, issue.keys[0] ?? ''] : issue.path
}

/** Puts an issue into words: `models[3].pricing.multipliers.resolution: has no factor for 1080p`. */
function wordsOf(issue: Issue, value: unknown): string {
  const place = placeOf(issue.path)
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

function lineAt(lines: LineCounter, offset: number): number {
  return Math.max(lines.linePos(offset).line, 1)
}

/** Finds the line of a path. For a missing key, the line of its parent. */
function createLineFinder(yaml: typeof import('yaml'), document: Document.Parsed, lines: LineCounter) {
  return (steps: readonly PropertyKey[]): number => {
    let node: unknown = document.contents
    let line = 1
    for (const step of steps) {
      if (yaml.isAlias(node)) node = node.resolve(document)
      let position: unknown
      if (yaml.isMap(node)) {
        const pair = node.items.find(({ key }) => yaml.isScalar(key) && String(key.value) === String(step))
        position = pair?.key
        node = pair?.value
      } else if (yaml.isSeq(node)) {
        node = node.items[Number(step)]
        position = node
      }
      if (!yaml.isNode(position) || !position.range) return line
      line = lineAt(lines, position.range[0])
    }
    return line
  }
}
