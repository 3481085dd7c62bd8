import type { CatalogModel } from '../catalog/catalog-model.ts'
import { type Input, validateInput } from '../catalog/input.ts'
import { priceOf } from '../catalog/pricing.ts'
import { checkReferences, type ReferenceRules } from '../references/reference-links.ts'

/** Validates an input and the text of its links (spec, submit rule 2). Submit and estimate refuse the same inputs. */
export function checkInput(model: CatalogModel, given: Record<string, unknown>, rules: ReferenceRules): Input {
  const input = validateInput(model, given)
  checkReferences(input, rules)
  return input
}

/** The credits that a submit would reserve for this input (spec, estimate). Throws HttpError 422 for invalid input. */
export function estimateCredits(model: CatalogModel, given: Record<string, unknown>, rules: ReferenceRules): number {
  return Number(priceOf(model, checkInput(model, given, rules)))
}
