import fs from 'node:fs'
import type { Logger } from '../../platform/logger.ts'
import { type ReadVariable, readEngineToken } from '../engines/engine-token.ts'
import { builtInCatalog, parseCatalog } from './catalog-file.ts'
import { type Catalog, engineOf } from './catalog-model.ts'

/** Each problem begins with the file and the line. */
export type CatalogReading = { catalog: Catalog; problems: [] } | { catalog: undefined; problems: readonly string[] }

/** Reads the file of PROVIDER_CATALOG; without one, the built-in catalog. */
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
  return { catalog: undefined, problems: parsed.problems.map(({ line, message }) => `${file}:${line} ${message}`) }
}

/** The engines of a catalog whose token is missing, as problems; only the process that runs engines needs the tokens. */
export function tokenProblems(catalog: Catalog, readVariable?: ReadVariable): string[] {
  return [...catalog.values()].flatMap((model) => {
    try {
      readEngineToken(engineOf(model), readVariable)
      return []
    } catch (error) {
      return [`${model.slug}: engine_settings.${error instanceof Error ? error.message : String(error)}`]
    }
  })
}

export type CatalogSource = { current: () => Catalog; reread: () => void }

/** The catalog in force. A file that is broken when it is read again changes nothing. */
export function createCatalogSource(
  { catalog, catalogFile: file }: { catalog: Catalog; catalogFile: string | undefined },
  logger: Logger,
): CatalogSource {
  let current = catalog
  const reread = () => {
    const { catalog: read, problems } = readCatalog(file)
    const all = read ? tokenProblems(read) : problems
    if (read === undefined || all.length > 0)
      return logger.error({ file, problems: all }, 'the catalog is broken, the old one stays')
    current = read
    logger.info({ file, models: current.size }, 'catalog read again')
  }
  return { current: () => current, reread }
}
