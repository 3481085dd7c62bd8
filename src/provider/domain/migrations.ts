import path from 'node:path'

/** The provider's schema and the folder of its history. */
export const migrations = {
  schema: 'provider',
  folder: path.resolve(import.meta.dirname, '../../../drizzle/provider'),
} as const
