import fs from 'node:fs'
import type { Logger } from '../../platform/logger.ts'
import { type ReadVariable, readEngineToken } from '../engines/engine-token.ts'
import { builtInCatalog, parseCatalog } from './catalog-file.ts'
import { type Catalog, engineOf } from './catalog-model.ts'

/** The result of reading the catalog. Each problem names the file. */
export type CatalogReading = { catalog: Catalog | undefined; problems: readonly string[] }

/** Reads the file of PROVIDER_CATALOG, or the built-in catalog without one. */
export function readCatalog(file: string | undefined): CatalogReading {
  if (file === undefined) return { catalog: builtInCatalog(), problems: [] }
  let text: string
  try {
    text = fs.readFileSync(file, 'utf8')
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    return { catalog: undefined, problems: [`${file} cannot be read: ${code}`] }
  }
  const parsed = parseCatalog(text)
  if (parsed.kind === 'valid') return { catalog: parsed.catalog, problems: [] }
  return { catalog: undefined, problems: parsed.problems.map((problem) => `${file} ${problem}`) }
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
