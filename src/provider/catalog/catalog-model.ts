import type { Model } from '../../wire/schemas.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'

/**
 * One model as the catalog file describes it: the part that the wire shows
 * (spec, Model), and the engine that runs it. `environments` is where the model
 * is active until an operator switches it; `note` says which input the price in
 * the catalog list is for.
 */
export type CatalogModel = Model & {
  engine: string
  engine_settings: Record<string, unknown>
  environments: readonly ('live' | 'sandbox')[]
  note?: string | undefined
}

/** The models by slug, in the order of the file. */
export type Catalog = ReadonlyMap<string, CatalogModel>

/** The engine of a model as a request keeps it. */
export function engineOf({ engine: name, type, engine_settings: settings }: CatalogModel): EngineChoice {
  return { name, type, settings }
}
