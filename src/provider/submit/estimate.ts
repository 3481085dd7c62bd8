import type { Caller } from '../accounts/identify.ts'
import { findActiveModel, unknownModel } from '../catalog/catalog.ts'
import { validateInput } from '../catalog/input.ts'
import { priceOf } from '../catalog/pricing.ts'

/** `POST /v1/models/{model}/estimate` (spec): what submit would reserve for the same input. */
export function estimateCredits(
  caller: Pick<Caller, 'environment' | 'activations'>,
  slug: string,
  input: Record<string, unknown>,
): number {
  const model = findActiveModel(caller, slug)
  if (model === undefined) throw unknownModel(slug)
  return Number(priceOf(model, validateInput(model, input)))
}
