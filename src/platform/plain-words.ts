import type { z } from 'zod'

/**
 * Passed to zod's parse functions where people read the messages. States what a value must be, with JSON's types. A
 * schema's own message takes precedence. Never quotes the value, which can be a secret.
 */
export const plainWords = { error: wordsOf }

function wordsOf(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.input === undefined && (issue.code === 'invalid_type' || issue.code === 'invalid_value'))
    return 'is missing'
  switch (issue.code) {
    case 'invalid_type':
      if (issue.expected === 'int' && typeof issue.input === 'number') return 'must be a whole number'
      return `must be ${named(issue.expected)}, not ${named(jsonType(issue.input))}`
    case 'invalid_value':
      return `must be ${issue.values.length === 1 ? '' : 'one of '}${issue.values.map(String).join(', ')}`
    case 'unrecognized_keys':
      return `has an unknown member ${issue.keys[0]}`
    case 'too_small':
      if (issue.minimum === 1 && units[issue.origin] !== undefined) return 'must not be empty'
      return bound(issue.origin, `at least ${issue.minimum}`, issue.inclusive ?? true, `greater than ${issue.minimum}`)
    case 'too_big':
      return bound(issue.origin, `at most ${issue.maximum}`, issue.inclusive ?? true, `less than ${issue.maximum}`)
    case 'invalid_format':
      return issue.format === 'guid' || issue.format === 'uuid' ? 'must be a uuid' : undefined
    case 'custom':
    case 'invalid_element':
    case 'invalid_key':
    case 'invalid_union':
    case 'not_multiple_of':
      return undefined
  }
}

/** The code of an error, for messages that must not show its text, which could quote a secret. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}

/** The path of an issue in a JSON text, like `models[3].pricing`. Empty for the whole text. */
export function placeOf(path: readonly PropertyKey[]): string {
  const steps = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`))
  return steps.join('').replace(/^\./, '')
}

/** The type of a parsed JSON value, by JSON's own name. */
export function jsonType(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
}

/** A type of JSON or of zod, with its article. */
export function named(type: string): string {
  if (type === 'null' || type === 'undefined') return type
  if (type === 'int') return 'a whole number'
  if (type === 'record') return 'an object'
  return `${/^[aeio]/.test(type) ? 'an' : 'a'} ${type}`
}

const units: Record<string, string> = { string: 'characters', array: 'items', record: 'members', object: 'members' }

function bound(origin: string, limit: string, isInclusive: boolean, strict: string): string {
  const unit = units[origin]
  return unit === undefined ? `must be ${isInclusive ? limit : strict}` : `must have ${limit} ${unit}`
}
