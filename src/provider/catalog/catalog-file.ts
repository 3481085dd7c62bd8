import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import type { z } from 'zod'
import type { Logger } from '../../platform/logger.ts'
import { errorCode, jsonType, named, placeOf, plainWords } from '../../platform/plain-words.ts'
import { readEngineToken, type ReadVariable } from '../engines/engine-settings.ts'
import { type Catalog, engineOf } from './catalog-model.ts'
import { catalogFileSchema } from './catalog-schema.ts'

/** The result of reading a catalog: the catalog, or what is wrong. */
export type CatalogReading = { catalog: Catalog | undefined; problems: readonly string[] }

const require = createRequire(import.meta.url)

/** Parses the YAML or JSON of a catalog file. Each problem has its place: a line, or the path of a member. */
export function parseCatalog(text: string): CatalogReading {
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
  return { catalog: new Map(parsed.data.models.map((model) => [model.slug, model])), problems: [] }
}

let builtIn: Catalog | undefined

/** The packaged catalog. */
export function builtInCatalog(): Catalog {
  if (builtIn !== undefined) return builtIn
  const file = path.join(import.meta.dirname, 'catalog.yaml')
  const { catalog, problems } = parseCatalog(fs.readFileSync(file, 'utf8'))
  if (catalog === undefined) throw new Error(`${file} is invalid: ${problems.join('; ')}`)
  return (builtIn = catalog)
}

/** Reads the file of PROVIDER_CATALOG, or the built-in catalog without one. Each problem names the file. */
export function readCatalog(file: string | undefined): CatalogReading {
  if (file === undefined) return { catalog: builtInCatalog(), problems: [] }
  let text: string
  try {
    text = fs.readFileSync(file, 'utf8')
  } catch (error) {
    return broken([`${file} cannot be read: ${errorCode(error)}`])
  }
  const { catalog, problems } = parseCatalog(text)
  return { catalog, problems: problems.map((problem) => `${file} ${problem}`) }
}

/** Returns a problem for each model whose token is missing. Only the process that runs engines needs the tokens. */
export function tokenProblems(catalog: Catalog, readVariable?: ReadVariable): string[] {
  return [...catalog.values()].flatMap((model) => {
    try {
      readEngineToken(engineOf(model), readVariable)
      return []
    } catch (error) {
      return [`models.${model.slug}.engine_settings.${error instanceof Error ? error.message : String(error)}`]
    }
  })
}

/** Holds the current catalog. An invalid file changes nothing on reload. */
export function createCurrentCatalog(
  { catalog, catalogFile: file }: { catalog: Catalog; catalogFile: string | undefined },
  logger: Logger,
) {
  let current = catalog
  const reread = () => {
    const { catalog: read, problems: broken } = readCatalog(file)
    const problems = read === undefined ? broken : tokenProblems(read)
    if (read === undefined || problems.length > 0)
      return logger.error({ file, problems }, 'the catalog is invalid: keeping the old one')
    current = read
    logger.info({ file, models: current.size }, 'catalog read again')
  }
  return { current: () => current, reread }
}

function broken(problems: readonly string[]): CatalogReading {
  // At most 20 problems of a file are shown. The others appear after these are corrected.
  const more = problems.length > 20 ? [`and ${problems.length - 20} more problems`] : []
  return { catalog: undefined, problems: [...problems.slice(0, 20), ...more] }
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
