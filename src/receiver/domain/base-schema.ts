import { pgSchema } from '../../platform/postgres/drizzle.ts'

export const mediadock = pgSchema('mediadock')
