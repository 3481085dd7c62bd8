import type { Model } from '../../wire/schemas.ts'
import { audioModels } from './catalog-data-audio.ts'
import { imageModels } from './catalog-data-image.ts'
import { videoModels } from './catalog-data-video.ts'

/**
 * One model as it is shipped: what the wire shows (spec, Model), and what runs
 * it. `environments` is where it is active until somebody switches it; `note`
 * says what the price in the catalog list, at every default, is for.
 */
export type CatalogModel = Model & {
  /** Name of the engine in `createEngines`, unless PROVIDER_ENGINES binds the slug to another. */
  engine: string
  environments: readonly ('live' | 'sandbox')[]
  note?: string
}

/**
 * The catalog. Prices are `credits_base` times one factor of each parameter in
 * `multipliers` (CONTRACT, price): every such parameter is required or has a
 * default, and lists exactly the values that have a factor. Factors have few
 * decimals, so that products are exact.
 */
export const catalog: readonly CatalogModel[] = [...imageModels, ...videoModels, ...audioModels]
