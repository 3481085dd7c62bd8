import path from 'node:path'

/** The receiver's schema and the folder of its migrations. */
export const migrations = {
  schema: 'mediadock',
  folder: path.resolve(import.meta.dirname, '../../../drizzle/receiver'),
} as const
