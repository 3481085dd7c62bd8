import { alias } from '../../platform/postgres/drizzle.ts'
import { arrivals, quarantine } from '../domain/arrivals-schema.ts'
import { deliveries, requests } from '../domain/schema.ts'

// The tables of the lists. A condition of one file stands in statements of other files, which use the same alias.

export const a = alias(arrivals, 'a')
export const d = alias(deliveries, 'd')
export const q = alias(quarantine, 'q')
export const r = alias(requests, 'r')
