import { customType, pgSchema, timestamp } from '../../platform/postgres/drizzle.ts'

export const mediadock = pgSchema('mediadock')

export const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })

export const instant = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true, mode: 'date' })
