import { HttpError } from '../../platform/http/http.ts'
import type { InputDescriptor, Model } from '../../wire/schemas.ts'

export type InputValue = string | number | boolean | (string | number)[]

/** Input validated against a model's input_schema, with defaults. */
export type Input = Record<string, InputValue>

type ModelInput = Pick<Model, 'input_schema' | 'pricing'>

/**
 * Validates the input of submit and estimate against the model's input_schema (spec, submit rule 2). Input that the
 * schema does not allow is 422 model_input_invalid with a message that names the key.
 */
export function validateInput(model: ModelInput, raw: Record<string, unknown>): Input {
  const schema = model.input_schema
  for (const key of Object.keys(raw)) {
    if (!Object.hasOwn(schema, key)) throw invalid(key, 'is not a parameter of this model')
  }
  const input: Input = {}
  for (const [key, descriptor] of Object.entries(schema)) {
    const value = Object.hasOwn(raw, key) ? checked(key, descriptor, raw[key]) : descriptor.default
    if (value !== undefined) input[key] = value
    else if (descriptor.required) throw invalid(key, 'is required')
    checkPriced(model, key, value)
  }
  return input
}

function checked(key: string, descriptor: InputDescriptor, value: unknown): InputValue {
  switch (descriptor.type) {
    case 'string':
      return checkedString(key, descriptor, value)
    case 'number':
      return checkedNumber(key, descriptor, value)
    case 'boolean':
      if (typeof value !== 'boolean') throw invalid(key, 'must be a boolean')
      return value
    case 'array':
      return checkedArray(key, descriptor, value)
    default:
      return descriptor.type satisfies never
  }
}

function checkedString(key: string, descriptor: InputDescriptor, value: unknown): string {
  if (typeof value !== 'string') throw invalid(key, 'must be a string')
  if (value.includes('\0')) throw invalid(key, 'must not contain the character NUL')
  if (!value.isWellFormed()) throw invalid(key, 'must not contain half of a surrogate pair')
  checkEnum(key, descriptor, value)
  if (descriptor.required && value === '') throw invalid(key, 'must not be empty')
  const { max_length: maxLength } = descriptor
  // Counts code points: a character outside the basic plane counts once.
  if (maxLength !== undefined && value.length > maxLength && [...value].length > maxLength) {
    throw invalid(key, `must have at most ${maxLength} characters`)
  }
  return value
}

function checkedNumber(key: string, descriptor: InputDescriptor, value: unknown): number {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw invalid(key, 'must be a number')
  checkEnum(key, descriptor, value)
  if (descriptor.min !== undefined && value < descriptor.min) throw invalid(key, `must be at least ${descriptor.min}`)
  if (descriptor.max !== undefined && value > descriptor.max) throw invalid(key, `must be at most ${descriptor.max}`)
  return value
}

function checkedArray(key: string, descriptor: InputDescriptor, value: unknown): (string | number)[] {
  if (!Array.isArray(value)) throw invalid(key, 'must be an array')
  if (descriptor.max_items !== undefined && value.length > descriptor.max_items) {
    throw invalid(key, `must have at most ${descriptor.max_items} items`)
  }
  if (descriptor.required && value.length === 0) throw invalid(key, 'must have at least one item')
  const item = descriptor.items ?? { type: 'string' }
  return value.map((element, index) => {
    const at = `${key}[${index}]`
    return item.type === 'string' ? checkedString(at, item, element) : checkedNumber(at, item, element)
  })
}

function checkEnum(key: string, descriptor: InputDescriptor, value: string | number): void {
  if (descriptor.enum === undefined || descriptor.enum.includes(value)) return
  throw invalid(key, `must be one of ${descriptor.enum.join(', ')}`)
}

/** Refuses a value without a factor, which has no price. */
function checkPriced({ pricing }: ModelInput, key: string, value: InputValue | undefined): void {
  const factors = pricing.multipliers?.[key]
  if (factors === undefined || value === undefined || Object.hasOwn(factors, String(value))) return
  throw invalid(key, `must be one of ${Object.keys(factors).join(', ')}`)
}

function invalid(key: string, what: string): HttpError {
  const shown = key.length > 80 ? `${key.slice(0, 80)}…` : key
  return new HttpError(422, 'model_input_invalid', `input.${shown.toWellFormed()} ${what}`)
}
