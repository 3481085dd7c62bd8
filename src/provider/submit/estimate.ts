import type { Caller } from '../accounts/identify.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { findActiveModel, unknownModel } from '../catalog/catalog.ts'
import { validateInput } from '../catalog/input.ts'
import { priceOf } from '../catalog/pricing.ts'

type Wanted = { caller: Pick<Caller, 'environment' | 'activations'>; slug: string; input: Record<string, unknown> }

/** `POST /v1/models/{model}/estimate` (spec): the credits that submit would reserve for this input. */
export function estimateCredits(catalog: Catalog, { caller, slug, input }: Wanted): number {
  const model = findActiveModel(catalog, caller, slug)
  if (model === undefined) throw unknownModel(slug)
  return Number(priceOf(model, validateInput(model, input)))
}
