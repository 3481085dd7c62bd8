import { audioModels } from './catalog-data-audio.ts'
import { imageModels } from './catalog-data-image.ts'
import { videoModels } from './catalog-data-video.ts'
import type { CatalogModel } from './catalog-model.ts'

/**
 * The catalog. Prices are `credits_base` times one factor of each parameter in
 * `multipliers` (decisions, price): every such parameter is required or has a
 * default, and lists exactly the values that have a factor. Factors have few
 * decimals, so that products are exact.
 */
export const catalog: readonly CatalogModel[] = [...imageModels, ...videoModels, ...audioModels]
