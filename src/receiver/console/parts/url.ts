import type { Request } from 'express'
import { linkTo, type Query } from '../../../platform/pages/filters.ts'
import { ago } from '../../queries/filters.ts'

/** A link to the first page of the same list with other filters and no open row. */
export function linkWith(path: string, query: Query, changes: Query): string {
  return linkTo(path, { ...query, cursor: undefined, open: undefined, ...changes })
}

/** A time without an offset like `2026-01-31 03:00` is in UTC, as the form says. */
const withoutOffset = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?)?$/

/** The parameters of a page for the filters' parser. Empty ones are left out, and the last of a repeated one counts. */
export function queryOf(req: Request): Record<string, string> {
  const given = Object.entries(req.query).flatMap(([name, value]) => {
    const last: unknown = Array.isArray(value) ? value.at(-1) : value
    const text = typeof last === 'string' ? last.trim() : ''
    return text === '' ? [] : [[name, name === 'since' || name === 'until' ? inUtc(text) : text] as const]
  })
  return Object.fromEntries(given)
}

/** The parameters without those with the given names. */
export function without(query: Query, ...names: string[]): Record<string, string> {
  return Object.fromEntries(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined || names.includes(name) ? [] : [[name, value]],
    ),
  )
}

function inUtc(text: string): string {
  const [, day, minutes = '00:00', seconds = ':00'] = withoutOffset.exec(text) ?? []
  return day === undefined ? ago(text) : `${day}T${minutes}${seconds}Z`
}
