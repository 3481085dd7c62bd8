import path from 'node:path'

/** The provider's schema and the folder of its migrations. */
export const migrations = {
  schema: 'provider',
  folder: path.resolve(import.meta.dirname, '../../../drizzle/provider'),
} as const
