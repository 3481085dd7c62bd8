import type { Model } from '../../wire/schemas.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'

/**
 * A model of the catalog file: the part that the API shows (spec, Model), and its engine. `environments` are those in
 * which the model is active until an operator changes it. `note` names the input to which the listed price applies.
 */
export type CatalogModel = Model & {
  engine: string
  engine_settings: Record<string, unknown>
  environments: readonly ('live' | 'sandbox')[]
  note?: string | undefined
}

/** The models by slug, in the order of the file. */
export type Catalog = ReadonlyMap<string, CatalogModel>

/** The engine of a model, as stored with a request. */
export function engineOf({ engine: name, type, engine_settings: settings }: CatalogModel): EngineChoice {
  return { name, type, settings }
}
