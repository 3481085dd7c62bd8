import { HttpError } from '../../platform/http/http.ts'
import { maxNesting } from './limits.ts'

/** Throws HttpError 422 not_storable if Postgres cannot store the body of a call. */
export function mustBeStorable(body: unknown): void {
  if (isStorable(body)) return
  const message = `the body must not contain NUL or lone surrogates, or be nested deeper than ${maxNesting}`
  throw new HttpError(422, 'not_storable', message)
}

/**
 * Returns true if Postgres can store the value as jsonb: no NUL, no lone surrogate (keys included), bounded nesting.
 * `from` is the depth of the value.
 */
export function isStorable(value: unknown, from = 0): boolean {
  const open: { value: unknown; depth: number }[] = [{ value, depth: from }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { depth } = next
    if (typeof next.value === 'string' && (!next.value.isWellFormed() || next.value.includes('\0'))) return false
    if (typeof next.value !== 'object' || next.value === null) continue
    if (depth === maxNesting) return false
    for (const [key, inner] of Object.entries(next.value))
      open.push({ value: key, depth }, { value: inner, depth: depth + 1 })
  }
  return true
}
