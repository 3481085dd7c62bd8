import type { Model } from '../../wire/schemas.ts'

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
