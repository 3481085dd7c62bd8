import type { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import type { catalogEntrySchema, modelSchema } from '../../wire/schemas.ts'
import type { Caller } from '../accounts/identify.ts'
import type { Catalog, CatalogModel } from './catalog-model.ts'
import type { Input } from './input.ts'
import { priceOf } from './pricing.ts'

type Viewer = Pick<Caller, 'environment' | 'activations'>

/** The models that are active for this caller's environment (spec, Model and Versioning). */
export function activeModels(catalog: Catalog, caller: Viewer): CatalogModel[] {
  return [...catalog.values()].filter((model) => isActive(model, caller))
}

/** Finds a model by its exact slug. Undefined if it is unknown or not active for this caller. */
export function findActiveModel(catalog: Catalog, caller: Viewer, slug: string): CatalogModel | undefined {
  const model = catalog.get(slug)
  return model && isActive(model, caller) ? model : undefined
}

/** Finds an active model, or throws the 404 of schema and estimate. */
export function activeModel(catalog: Catalog, caller: Viewer, slug: string): CatalogModel {
  const model = findActiveModel(catalog, caller, slug)
  if (model === undefined) throw new HttpError(404, 'not_found', `there is no model ${shown(slug)} for this key`)
  return model
}

/** The error of an unknown model at submit, where the spec has a separate code (Errors). */
export function modelNotFound(slug: string): HttpError {
  return new HttpError(404, 'model_not_found', `the model ${shown(slug)} is not active in this environment`)
}

/** An entry of the list. `credits` is the price with all optional parameters at their defaults. */
export function catalogEntry(model: CatalogModel): z.infer<typeof catalogEntrySchema> {
  const { slug, type, name, capabilities, note } = model
  const credits = Number(priceOf(model, defaultsOf(model)))
  return { slug, type, name, capabilities, pricing: { credits, ...(note !== undefined && { note }) } }
}

export function modelResource(model: CatalogModel): z.infer<typeof modelSchema> {
  const { slug, type, name, capabilities, input_schema, pricing } = model
  return { slug, type, name, capabilities, input_schema, pricing }
}

function isActive(model: CatalogModel, { environment, activations }: Viewer): boolean {
  return activations[model.slug] ?? model.environments.includes(environment)
}

export function defaultsOf({ input_schema: schema }: Pick<CatalogModel, 'input_schema'>): Input {
  const entries = Object.entries(schema).flatMap(([key, { default: value }]) =>
    value === undefined ? [] : [[key, value] as const],
  )
  return Object.fromEntries(entries)
}

function shown(slug: string): string {
  return slug.slice(0, 80).toWellFormed()
}
